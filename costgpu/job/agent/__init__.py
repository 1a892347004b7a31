"""The agent that lives on the machine: standard library only, Python 3.8 and newer, Linux.

It imports nothing of ours but `costgpu.portable`: both travel as one file, which `costgpu.job.machine.install_agent` stores.

On the machine everything is in one folder, the home: ``work`` (the user's files), ``stdout.log`` and ``stderr.log``,
``order.json`` (what to run; its existence means that a job was started), ``progress.json`` and ``exit.json`` (written by
the job's supervisor), ``state.json`` (written by the daemon). No secret is in any of them.
"""
