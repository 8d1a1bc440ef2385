"""What people touch: command line, commands, analysis and the screen."""
