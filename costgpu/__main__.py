"""`python -m costgpu` is the command line."""

from costgpu.cli.app import main

if __name__ == "__main__":
    main()
