#!/bin/sh
# google_metadata_script_runner startup: what the metadata name so, as root.
key=$1-script
url=http://metadata.google.internal/computeMetadata/v1/instance/attributes/$key
folder=$(mktemp -d /tmp/metadata-scripts.XXXXXX) || exit 1
tries=0
until code=$(curl -s -o "$folder/$key" -w '%{http_code}' -H 'Metadata-Flavor: Google' "$url") && [ "$code" != 000 ]; do
    tries=$((tries + 1))
    [ "$tries" -lt 50 ] || exit 1
    sleep 0.1
done
if [ "$code" = 200 ] && [ -s "$folder/$key" ]; then
    echo "Found $key in metadata."
    chmod 700 "$folder/$key"
    "$folder/$key" 2>&1 | sed -u "s/^/$key: /"
    echo "Finished running $1 scripts."
else
    echo "No $1 scripts to run."
fi
rm -rf "$folder"
