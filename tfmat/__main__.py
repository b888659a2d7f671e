"""`python -m tfmat COMMAND ...` is the same program as `tfmat COMMAND ...`."""

from tfmat.cli.main import console_main

if __name__ == "__main__":
    console_main()
