"""The terminal: what it can do, how it is driven and restored, and its colours.

- driver: Textual's Linux driver with fewer bytes and a clean exit; recording as asciicast
- paint: lines of spans as strips of the terminal, with the colours of a theme, or in ASCII
- screen_diff: of each output, send only the cells that changed
- theme: palettes and themes: the style of each role
- tty: whether a screen is possible, how the terminal is restored, the clipboard sequence
"""
