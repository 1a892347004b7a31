"""What keeps the user's files as they are while a program is measured."""
