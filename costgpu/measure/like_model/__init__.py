"""The script that stands for the fine-tune of a model of a hub that has no script yet."""
