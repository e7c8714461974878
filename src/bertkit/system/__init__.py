"""What the operating system asks for: terminal, files, devices, the Hub cache, validated settings."""
