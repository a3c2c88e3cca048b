"""What a service.py does before and after the model."""
