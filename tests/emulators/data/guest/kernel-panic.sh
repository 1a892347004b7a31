#!/bin/sh
echo '[    1.021337] VFS: Unable to mount root fs on unknown-block(0,0)'
echo '[    1.021998] Kernel panic - not syncing: VFS: Unable to mount root fs on unknown-block(0,0)'
while :; do sleep 3600; done
