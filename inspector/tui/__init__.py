"""The screen: keys become commands, views become pictures. The only place that imports Textual."""
