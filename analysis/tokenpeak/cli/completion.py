"""`tokenpeak completion`: what a shell evaluates to complete commands, options and names."""

import click
from click.shell_completion import get_completion_class

from tokenpeak.terminal import echo_text

_SHELLS = ("bash", "zsh", "fish")


@click.command(short_help="Print the completion of bash, zsh or fish.")
@click.argument("shell", type=click.Choice(_SHELLS))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print what SHELL evaluates to complete commands, options, and names of inventories, sweeps and archives.

    \b
    bash   eval "$(tokenpeak completion bash)" in ~/.bashrc
    zsh    eval "$(tokenpeak completion zsh)" in ~/.zshrc, after compinit
    fish   tokenpeak completion fish | source in ~/.config/fish/config.fish
    """  # noqa: D301 — click keeps the lines below a backspace as they are
    made = get_completion_class(shell)
    assert made is not None
    echo_text(made(ctx.find_root().command, {}, "tokenpeak", "_TOKENPEAK_COMPLETE").source())
