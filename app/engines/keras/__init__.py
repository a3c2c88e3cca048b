"""What all engines for Keras files share, whatever Keras runs on."""
