narrow --version
