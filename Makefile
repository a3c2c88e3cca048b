# Two words do all the set-up on a fresh machine: `make serve` and `make test`.
# Only Linux on x86-64, Python 3.11, 3.12 or 3.13, and make have to be there. The
# environment lives in .venv.

# The packages are pinned for 3.11, and are the same for 3.12 and 3.13. For 3.14 there is
# no TensorFlow yet. Of the Pythons on PATH, the first that was compiled with
# optimizations, else the first that starts.
PYTHON ?= $(shell IFS=:; for check in app/interpreter.py --version; do \
	for name in python3.11 python3.12 python3.13 python3; do for folder in $$PATH; do \
	"$$folder/$$name" "$$check" > /dev/null 2>&1 && { echo "$$folder/$$name"; exit; }; \
	done; done; done)
VENV := .venv
# For KServe's client in the tests, which wants another protobuf than TensorFlow.
KSERVE_VENV := .venv-kserve
# For PyTriton's client, which wants an older NumPy, and a glibc of 2.35 or newer.
PYTRITON_VENV := .venv-pytriton
# Its models come as three kinds of files. A folder, as .venv has most of what it needs.
BASIC_PITCH := .venv-basic-pitch
# For the tests of model files that Keras 2 wrote.
KERAS2_FILES := .keras2-files
# For the tests that look at the page with axe-core, where npm is.
AXE := $(if $(shell command -v npm),$(VENV)/axe/done)
BIN := $(VENV)/bin
# A machine with an NVIDIA driver gets TensorFlow with CUDA.
SERVE_REQUIREMENTS := $(if $(shell command -v nvidia-smi),requirements/cuda.txt,requirements.txt)
PIP_INSTALL = -m pip install --disable-pip-version-check --progress-bar=off --require-hashes
# A line for each ten packages, as an installation takes minutes.
PROGRESS = | awk '/^Collecting/ && ++n % 10 == 0 { print "  " n " packages ..."; fflush() } \
	/^Installing collected/ { print "  writing " n " packages ..."; fflush() }'
# A failure of pip is one of the pipe.
SHELL := /bin/bash
.SHELLFLAGS := -o pipefail -c

.PHONY: help serve test bench soak loadtest lint format digits descriptors requirements bench-requirements clean

help:
	@echo "make serve [ARGS=...]  serve the models in models/ on 127.0.0.1:8000; or one"
	@echo "                       file or folder: MODEL=my.keras"
	@echo "make test [ARGS=...]   run all tests; ARGS go to pytest"
	@echo "make bench [ARGS=...]  measure Basket beside its peers: reports/<date>/;"
	@echo "                       ARGS such as --quick, or --loads tiny,policy"
	@echo "make soak              ten minutes of all kinds of clients: nothing lost or leaked"
	@echo "make loadtest          measure them under load: reports/<date>/; also with"
	@echo "                       MODEL=big PRICE=3.06 ARGS=--quick"
	@echo "make lint              check style and types"
	@echo "make format            put the code into its standard form"
	@echo "make digits            train the demo model again"
	@echo "make descriptors       compile the descriptions of gRPC's messages again"
	@echo "make requirements      pin the newest versions of all dependencies"
	@echo "make bench-requirements  pin the newest versions of the peers"
	@echo "make clean             remove the environment and all caches"

# A path may have blanks, quotes and dollar signs: `value` does not expand it.
unexport MODEL
quoted = '$(subst ','\'',$(1))'
# With `make -C basket`, the folder of the shell that calls make; it comes first.
CALLER = $(or $(value PWD),$(CURDIR))
SERVED = $(shell model=$(call quoted,$(value MODEL)) folder=$(call quoted,$(CALLER)); \
	if [ -e "$$model" ] && [ ! -e "$$folder/$$model" ]; then folder=$$PWD; fi; \
	case $$model in (/*) ;; (*) model=$$folder/$$model ;; esac; printf %s "$$model")

serve: .free-port $(VENV)/serve.done
	$(if $(value MODEL),BASKET_MODEL=$(call quoted,$(SERVED)) )$(BIN)/gunicorn wsgi:app --threads=20 $(ARGS)

# No file: before minutes of installation, each time.
.free-port: | $(VENV)/bin/python
	@$(BIN)/python app/port_check.py $(ARGS)

# Four tests at a time, those of a file in one process: many wait, for servers and for
# times that they measure, which more would disturb.
# In the order of the folders, so that unit tests come last: they are short, and
# all processes end at about the same time.
test: .test-environments $(AXE)
	$(BIN)/python -m pytest --numprocesses=4 --dist=loadfile --no-loadscope-reorder $(ARGS)

# No file. What tests use beside .venv; those of which a part is missing are skipped.
.test-environments: $(VENV)/dev.done $(KSERVE_VENV)/done $(PYTRITON_VENV)/done \
		$(BASIC_PITCH)/done $(KERAS2_FILES)/done

bench: $(VENV)/dev.done
	$(BIN)/python -m bench.peers $(ARGS)

soak: $(VENV)/dev.done
	$(BIN)/python -m bench.reliability soak $(ARGS)

loadtest: $(VENV)/dev.done
	$(BIN)/python -m bench.loadtest $(if $(MODEL),--model $(MODEL)) \
		$(if $(PRICE),--price $(PRICE)) $(ARGS)

lint: $(VENV)/dev.done
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: $(VENV)/dev.done
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

digits: $(VENV)/dev.done
	$(BIN)/python models/digits/train.py

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' || { \
		echo "Basket needs Python 3.11, 3.12 or 3.13; say which: make PYTHON=/path/to/python3.11"; \
		exit 1; }
	@echo "Creating the environment in $(VENV) with $(PYTHON) ..."
	@$(PYTHON) -m venv $(VENV)

$(VENV)/serve.done: $(SERVE_REQUIREMENTS) | $(VENV)/bin/python
	@echo "Installing $< (TensorFlow is large: this takes a minute or two) ..."
	@$(BIN)/python $(PIP_INSTALL) -r $< $(PROGRESS)
	@touch $@

# On top of what serving needs, so that tests and benches use a GPU that is there.
$(VENV)/dev.done: requirements/dev.txt | $(VENV)/serve.done
	@echo "Installing $< ..."
	@$(BIN)/python $(PIP_INSTALL) -r $< $(PROGRESS)
	@touch $@

# Finds what keeps people from using the page; tests need it, and skip without it.
$(VENV)/axe/done: requirements/axe/package-lock.json | $(VENV)/bin/python
	@mkdir -p $(@D) && cp requirements/axe/*.json $(@D)
	@if (cd $(@D) && npm ci --ignore-scripts --no-audit --no-fund --loglevel=silent \
			--fetch-retries=1 --fetch-timeout=20000 > /dev/null); \
		then touch $@; else echo "axe-core can't be installed: its tests are skipped"; fi

$(KSERVE_VENV)/done: requirements/kserve.txt | $(VENV)/bin/python
	@echo "Installing $< into $(KSERVE_VENV) (half a minute) ..."
	@$(BIN)/python -m venv $(KSERVE_VENV)
	@$(KSERVE_VENV)/bin/python $(PIP_INSTALL) --no-compile -r $< $(PROGRESS)
	@touch $@

# There are no packages of that NumPy for Python 3.13.
$(PYTRITON_VENV)/done: requirements/pytriton.txt | $(VENV)/bin/python
	@echo "Installing $< into $(PYTRITON_VENV) ..."
	@$(BIN)/python -m venv $(PYTRITON_VENV)
	@if $(PYTRITON_VENV)/bin/python -m pip install --quiet --disable-pip-version-check \
			--no-compile --only-binary :all: --require-hashes -r $< 2> /dev/null; \
		then touch $@; else echo "PyTriton can't be installed: its test is skipped"; fi

$(BASIC_PITCH)/done: requirements/basic-pitch.txt | $(VENV)/dev.done
	@echo "Installing $< into $(BASIC_PITCH) ..."
	@$(BIN)/python $(PIP_INSTALL) --no-deps --upgrade --target $(BASIC_PITCH) -r $< $(PROGRESS)
	@touch $@

# The packages themselves, as they are: nothing of them is run.
$(KERAS2_FILES)/done: requirements/keras2_files.txt | $(VENV)/bin/python
	@echo "Downloading packages with model files of Keras 2 into $(KERAS2_FILES) (57 MB) ..."
	@if $(BIN)/python -m pip download --quiet --disable-pip-version-check --no-deps \
			--only-binary=:all: --python-version 3.11 --require-hashes --dest $(@D) -r $<; \
		then touch $@; else echo "They can't be downloaded: their tests are skipped"; fi

# Each set: what it is made of, a colon, and the end of its file's name.
SERVE := pyproject.toml
BESIDE := $(SERVE) --constraint requirements.txt --extra

requirements: $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet uv
	for set in "$(SERVE):" "$(BESIDE) cuda:/cuda" "$(BESIDE) load:/load" \
			"$(BESIDE) openvino:/openvino" "$(BESIDE) jax:/jax" "$(BESIDE) litert:/litert" \
			"$(BESIDE) onnx:/onnx" "$(BESIDE) ray:/ray" \
			"$(BESIDE) otel:/otel" "$(BESIDE) keras2:/keras2" "$(BESIDE) dev:/dev" \
			"--group kserve:/kserve" "--group pytriton:/pytriton" \
			"--no-deps --group basic-pitch:/basic-pitch"; do \
		case $$set in *pytriton) glibc=2_35;; *) glibc=2_28;; esac; \
		UV_CUSTOM_COMPILE_COMMAND="make requirements" $(BIN)/uv pip compile $${set%%:*} \
			--quiet --upgrade --generate-hashes --no-emit-index-url --no-emit-find-links \
			--python-version 3.11 --python-platform x86_64-manylinux_$$glibc \
			--output-file requirements$${set##*:}.txt || exit 1; \
	done

# The descriptions of gRPC's messages, as the server reads them.
descriptors: $(VENV)/dev.done
	cd app/protocols/protos && $(PWD)/$(BIN)/python -m grpc_tools.protoc -I. \
		--include_imports --descriptor_set_out=../descriptors.binpb *.proto

# The newest glibc that any of the peers' packages asks for.
bench-requirements: $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet uv
	cd requirements/peers && for peer in *.in; do \
		UV_CUSTOM_COMPILE_COMMAND="make bench-requirements" ../../$(BIN)/uv pip compile $$peer \
			--quiet --upgrade --generate-hashes --no-emit-index-url --no-emit-find-links \
			--python-version 3.11 --python-platform x86_64-manylinux_2_35 \
			--output-file $${peer%.in}.txt || exit 1; \
	done

clean:
	rm -rf $(VENV) $(KSERVE_VENV) $(PYTRITON_VENV) $(BASIC_PITCH) $(KERAS2_FILES) .venv-peers .mypy_cache .pytest_cache .ruff_cache .hypothesis
