"""Where files are: names on the command line, URLs, our private folders.

addresses: classify inputs: URL, glob pattern, `@` list of files, or path
remote_files: copy files behind URLs into the cache
user_dirs: paths of our cache, state and config files
recent_files: remember the files opened last
atomic: write files atomically
"""
