PYTHON ?= $(shell command -v python3.11 || command -v python3)
