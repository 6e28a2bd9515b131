"""Run every command of README, tutorials and how-to pages, and compare its output with the page.

How a page is written (`page_reader.py` reads it, `page_runner.py` runs it):

- ```` ```console ````: lines that begin with `$ ` are commands, the lines below are their output.
  A `…` stands for any text; a line with only `…` for any lines. Ids, times, durations and sizes may differ.
  A command without lines below may print anything. A command fails only where the page shows an error.
- ```` ```sh ````: every line is a command that must succeed.
- ```` ```yaml ````, ```` ```python ````, ```` ```html ````: written to the file that the comment above, or a comment in
  the first line (`# tasks/mine.yaml`), names. Python without a name is run.
- ```` ```json ```` must be JSON; ```` ```text ```` is not run.

A comment in the line before a block is not visible to readers:

- `<!-- file: NAME -->`: write the block to this file.
- `<!-- run: COMMAND -->`: run this first. It needs no block; several are allowed.
- `<!-- type: y | 1 | ^D -->`: the command runs in a terminal; type these, one at each prompt.
  A command that ends with another exit code than 0 fails here too, as does one that does not end in time.
- `<!-- exit: N -->`: every command of the block ends with exit code N.
- `<!-- numbers vary -->`: numbers in the output may differ.
- `<!-- skip: REASON -->`: do not run the block. Tests bound how many there are.

`paddock serve` starts in the background and stays until the page ends or starts another one.
An id on the page stands for the id that was printed at its place. `8420` stands for the port of the page's server.

The Chinese pages are not run. `page_pairs.py` checks that they have the same blocks, hidden comments, headings,
paragraphs, links and inline code as the English pages. Translate the comments in code; keep commands, files and output.
"""
