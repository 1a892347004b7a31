"""Task files of SkyPilot and dstack, read as the options of `costgpu run`; `read_task.with_task_file` is the door."""
