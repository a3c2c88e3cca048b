"""One model process for many web workers, with a Unix socket between them."""
