"""Tools of every sandbox: files, shell commands and Python cells."""
