#!/bin/sh
case "$*" in *uuid* | *serial*) echo ec2e1916-9099-7caf-fd21-012345abcdef ;; *) echo "Amazon EC2" ;; esac
