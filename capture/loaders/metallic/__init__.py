"""metallic: its JSON-lines recording, and the report that its analyzer prints."""
