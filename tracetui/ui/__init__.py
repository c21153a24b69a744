"""The only Textual code: app, panes, screens, keys."""
