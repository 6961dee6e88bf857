"""Running contenders in turns, and the facts of the machine they ran on."""
