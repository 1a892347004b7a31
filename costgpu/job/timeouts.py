"""The time limits of a run, in seconds, and how often is looked while waiting. Imports nothing."""

from __future__ import annotations

# Calls to a provider, repeated while it does not answer
CREATE_SECONDS = 300.0
DESCRIBE_SECONDS = 300.0
TERMINATE_SECONDS = 600.0

# What a provider may take
VISIBLE_SECONDS = 120.0  # within this after the create call, "no such instance" proves nothing
CONFIRM_SECONDS = 900.0  # from the terminate call to "terminated"
CLEAN_UP_SECONDS = 60.0  # access rules cannot be removed before the provider has let go of the machine's address
POWER_OFF_SECONDS = 60.0  # from the end of the lease to the provider's "terminated": one billing minute
EARLY_SECONDS = 30.0  # so long before its deadline a machine may switch itself off because of it

# What a machine may take
BOOT_SECONDS = 600.0  # from the id to an answer over SSH
ASK_SECONDS = 30.0  # until a machine that does not answer is ended without its job having been asked to end
SILENT_SECONDS = 25.0  # after a first silence, in which a machine is reached again and its agent says nothing
RECONNECT_SECONDS = 600.0  # without a connection before the job has started, or while its outputs come home
DRIVER_SECONDS = 90.0  # from the first question for its GPUs until the driver has named them
DRIVER_ANSWER_SECONDS = 20.0  # what its last answer may take

# Several machines
PEER_SECONDS = 30.0  # after one machine's job has failed, for the others to notice by themselves; then they are ended
TOUCH_SECONDS = 240.0  # a machine without a word of its client ends itself after 15 min
PEER_POLL_SECONDS = 5.0  # how often the other machines are asked while one is followed

# Interruptions
CHECKPOINT_SECONDS = 60.0  # between two looks for a new checkpoint
CHECKPOINT_SHARE = 0.1  # of the time, at most, that checkpoints travel in
UPLOAD_SECONDS = 120.0  # for a machine that is taken back to bring what its job has made into the bucket
WAIT_POLL_SECONDS = 5.0  # between two looks whether somebody has given up a job that waits for its next machine
SEARCH_SECONDS = (60.0, 600.0)  # first and longest pause before another search for a free machine

# Polling
QUICK_SECONDS = 15.0  # a booting machine is looked at often at first
QUICK_POLL_SECONDS = 0.25
POLL_SECONDS = 1.0
RECONNECT_POLL_SECONDS = 2.0
LEASE_CHECK_SECONDS = 60.0  # between two questions to the provider whether a lease is over that the clock here calls so
FIND_POLL_SECONDS = 3.0  # while looking for the machine of an unanswered create call

# The agent on a machine
CALL_SECONDS = 60.0  # for the answer to a question
INSTALL_SECONDS = 120.0  # for the agent to come up
CHECKSUMS_SECONDS = 3600.0  # for the machine to read all outputs
# without a sign of life from a followed machine (it gives one every 5 s) the connection counts as lost
SILENCE_SECONDS = 25.0
