"""From versions on disk to ready models: scan, load, warm up, swap, route, unload."""
