"""Results as text: tables and JSON documents. May import every room below the command line."""
