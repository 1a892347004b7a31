"""Where prices and hardware figures come from: facts that maintainers collect, and the providers' own price lists."""
