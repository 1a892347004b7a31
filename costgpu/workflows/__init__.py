"""What commands and the Python interface do: joins the rooms below into one piece of work. No terminal, no typer."""
