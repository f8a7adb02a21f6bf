"""The losses in other libraries' models. Each file needs its library, and is imported only by those who use it."""
