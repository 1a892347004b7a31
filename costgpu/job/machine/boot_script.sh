# shellcheck shell=sh disable=SC2154
# The first thing that runs, as root, at every boot of a machine. First the deadline watchdog, then sshd.
# Set above by boot_script.py: deadline (Unix seconds), lifetime, unclaimed (seconds), ssh_port, and the keys (empty
# where there is no sshd).
set -u
umask 022
PATH="${PATH:+$PATH:}/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
export PATH
home=${COSTGPU_HOME:-/opt/costgpu}
etc=${COSTGPU_ETC:-/etc}
volatile=${COSTGPU_VOLATILE:-/run}

say() {
    if [ -f "$home/console.log" ] || [ ! -e "$home/console.log" ]; then
        { printf 'costgpu: %s\n' "$*" >>"$home/console.log"; } 2>/dev/null
    fi
    if [ "$home" = /opt/costgpu ]; then { printf 'costgpu: %s\n' "$*" >/dev/console; } 2>/dev/null; fi
    return 0
}

# put FILE MODE TEXT: the whole file or the old one, never half of it; the text is in no process's arguments.
put() {
    ( umask 077 && printf '%s\n' "$3" >"$1.new" ) 2>/dev/null && chmod "$2" "$1.new" && mv -f "$1.new" "$1" && return 0
    rm -f "$1.new" 2>/dev/null
    return 1
}

has_systemd() { [ "$home" = /opt/costgpu ] && [ -d /run/systemd/system ] && command -v systemctl >/dev/null 2>&1; }

# A disk that was copied from another run's machine: its deadline, job and files are not ours.
if [ -n "$host_public_key" ] && [ "$home" = /opt/costgpu ] && [ -e "$home/identity" ]; then
    owner=
    { read -r owner <"$home/identity"; } 2>/dev/null
    if [ "$owner" != "$host_public_key" ]; then rm -rf "$home"; fi
fi
mkdir -p "$home" 2>/dev/null
# A provider may run this twice in one boot: what the agent has written meanwhile stays.
booted=$volatile/costgpu-booted
if [ ! -e "$booted" ]; then rm -f "$home/ended_by" 2>/dev/null; fi
if [ "$home" = /opt/costgpu ]; then { : >"$booted"; } 2>/dev/null; fi
if [ -n "$host_public_key" ] && [ ! -e "$home/identity" ]; then put "$home/identity" 644 "$host_public_key"; fi

# The deadline of the first boot is kept: nothing that comes later makes it later.
kept=
{ read -r kept <"$home/deadline"; } 2>/dev/null
case $kept in
    '' | *[!0-9]*) put "$home/deadline" 644 "$deadline" ;;
    *) if [ "$kept" -lt "$deadline" ]; then deadline=$kept; fi ;;
esac
put "$home/limits" 644 "$deadline $lifetime $unclaimed"

watchdog=$(cat <<'WATCHDOG'
#!/bin/sh
# watchdog.sh HOME DEADLINE LIFETIME UNCLAIMED: powers the machine off, whatever else goes wrong on it.
# It ends at the wall clock's DEADLINE, after LIFETIME seconds of monotonic time (kept across reboots, so that a wrong
# clock does not matter), or after UNCLAIMED seconds if no agent came. Nothing here depends on a disk that can be written.
set -u
H=$1 deadline=$2 lifetime=$3 unclaimed=$4
PATH="${PATH:+$PATH:}/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
export PATH
every=10
trap : HUP INT
# With systemd it is started again when it is killed, and must not hold up a shutdown, which waits 90 s for the deaf.
if [ "$H" = /opt/costgpu ] && [ ! -d /run/systemd/system ]; then trap : TERM; fi
{ echo -1000 >/proc/self/oom_score_adj; } 2>/dev/null
cd / || true

# A job can have put a FIFO there, and writing would wait for ever.
plain() { [ -f "$1" ] || [ ! -e "$1" ]; }

say() {
    if plain "$H/console.log"; then { printf 'costgpu: %s\n' "$*" >>"$H/console.log"; } 2>/dev/null; fi
    if [ "$H" = /opt/costgpu ]; then { printf 'costgpu: %s\n' "$*" >/dev/console; } 2>/dev/null; fi
    return 0
}

number() { case $1 in '' | *[!0-9]*) return 1 ;; *) return 0 ;; esac; }

uptime_now() {
    read -r up rest </proc/uptime
    up=${up%%.*}
}

# How long this boot has lasted: by the age of process 1, which is right in a container, too.
boot_age() {
    age=0
    if [ "$H" = /opt/costgpu ] && read -r stat </proc/1/stat; then
        # shellcheck disable=SC2086
        set -- ${stat##*) }
        if [ $# -ge 20 ] && number "${20}"; then age=$((up - ${20} / 100)); fi
        if [ "$age" -lt 0 ]; then age=0; fi
    fi
}

persist() {
    if plain "$H/life.new"; then
        { printf '%s %s %s\n' "$life" "$boot" "$up" >"$H/life.new" && mv -f "$H/life.new" "$H/life"; } 2>/dev/null
    fi
    persisted=$up
}

power_off() {
    say "watchdog $1: powering off (wall $now, deadline $deadline, lived ${life}s of ${lifetime}s)"
    if [ ! -e "$H/ended_by" ]; then { printf 'watchdog %s\n' "$1" >"$H/ended_by"; } 2>/dev/null; fi
    while :; do
        if [ -x "$H/poweroff" ]; then
            "$H/poweroff" "watchdog $1" </dev/null >/dev/null 2>&1 && [ "$H" != /opt/costgpu ] && exit 0
        fi
        if [ "$H" = /opt/costgpu ]; then
            systemctl kill --signal=KILL costgpu-agent.service >/dev/null 2>&1 # a job that is deaf would hold it up, too
            systemctl poweroff -i --no-block >/dev/null 2>&1 && sleep 30
            systemctl poweroff --force >/dev/null 2>&1 && sleep 10
            poweroff -f >/dev/null 2>&1 && sleep 5
            if [ ! -e /run/systemd/container ]; then
                { echo 1 >/proc/sys/kernel/sysrq; } 2>/dev/null
                { echo o >/proc/sysrq-trigger; } 2>/dev/null
            fi
        fi
        sleep 5
    done
}

boot=unknown
{ read -r boot </proc/sys/kernel/random/boot_id; } 2>/dev/null
uptime_now
boot_age
life=$age
saved_life='' saved_boot='' saved_up=''
if plain "$H/life"; then { read -r saved_life saved_boot saved_up <"$H/life"; } 2>/dev/null; fi
if number "$saved_life" && number "$saved_up"; then
    if [ "$saved_boot" = "$boot" ] && [ "$saved_up" -le "$up" ]; then
        life=$((saved_life + up - saved_up))
    else
        life=$((saved_life + every + age)) # what was not written before the last boot ended is counted as lived
    fi
fi
last=$up now=0
persist
say "watchdog armed: deadline $deadline, ${life}s of ${lifetime}s lived"

while :; do
    uptime_now
    if [ "$up" -gt "$last" ]; then
        life=$((life + up - last)) now=$((now + up - last)) last=$up
    fi
    wall=$(date +%s 2>/dev/null)
    if number "$wall"; then now=$wall; fi
    if [ "$now" -ge "$deadline" ]; then power_off deadline; fi
    if [ "$life" -ge "$lifetime" ]; then power_off lifetime; fi
    if [ "$life" -ge "$unclaimed" ] && [ ! -e "$H/claimed" ]; then power_off unclaimed; fi
    if [ "$((up - persisted))" -ge "$every" ]; then persist; fi
    nap=5
    for left in $((deadline - now)) $((lifetime - life)) $((unclaimed - life)); do
        if [ "$left" -ge 0 ] && [ "$left" -le 6 ]; then nap=1; fi
    done
    sleep "$nap"
done
WATCHDOG
)

script=$home/watchdog.sh
if ! put "$script" 755 "$watchdog"; then
    script=$volatile/costgpu-watchdog.sh # the disk is full or read-only
    put "$script" 755 "$watchdog" || say "the watchdog cannot be written"
fi

loop() {
    setsid /bin/sh "$script" "$home" "$deadline" "$lifetime" "$unclaimed" </dev/null >/dev/null 2>&1 &
}

arm() {
    if ! has_systemd; then
        loop
        return
    fi
    # Upgrades by themselves would change the GPU driver's libraries under a job, and hold apt's lock during its set-up.
    for unit in apt-daily.service apt-daily-upgrade.service; do
        ln -sf /dev/null "/run/systemd/system/$unit" # masked until the next boot, which comes by here again
    done
    unit=$(cat <<UNIT
[Unit]
Description=costgpu: powers this machine off at its deadline
DefaultDependencies=no
StartLimitIntervalSec=0
[Service]
ExecStart=/bin/sh $script $home $deadline $lifetime $unclaimed
Restart=always
RestartSec=2
OOMScoreAdjust=-1000
Nice=-5
StandardOutput=null
StandardError=journal
[Install]
WantedBy=sysinit.target
UNIT
)
    name=costgpu-deadline.service
    if put "/etc/systemd/system/$name" 644 "$unit"; then
        mkdir -p /etc/systemd/system/sysinit.target.wants
        ln -sf "../$name" "/etc/systemd/system/sysinit.target.wants/$name"
    else
        mkdir -p /run/systemd/system && put "/run/systemd/system/$name" 644 "$unit"
    fi
    systemctl daemon-reload
    systemctl start --no-block "$name"
    tries=0
    while [ "$tries" -lt 10 ]; do
        if [ "$(systemctl show -p MainPID --value "$name" 2>/dev/null || echo 0)" != 0 ]; then return; fi
        tries=$((tries + 1))
        sleep 1
    done
    say "$name did not start: the watchdog runs without systemd"
    loop # two watchdogs do no harm: both count the same uptime
}
arm

if [ -n "$host_private_key" ]; then
    mkdir -p "$etc/costgpu" "$etc/ssh/sshd_config.d"
    chmod 755 "$etc/costgpu"
    put "$etc/costgpu/ssh_host_ed25519_key" 600 "$host_private_key" || say "the host key cannot be written"
    put "$etc/costgpu/ssh_host_ed25519_key.pub" 644 "$host_public_key"
    put "$etc/costgpu/authorized_keys" 644 "$user_public_key" || say "the user's key cannot be written"
    put "$etc/ssh/sshd_config.d/10-costgpu.conf" 644 "Port $ssh_port
HostKey $etc/costgpu/ssh_host_ed25519_key
AuthorizedKeysFile $etc/costgpu/authorized_keys
AuthorizedKeysCommand none
PubkeyAuthentication yes
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
ClientAliveInterval 15
ClientAliveCountMax 4" || say "sshd cannot be configured"
    main=$etc/ssh/sshd_config
    if [ -f "$main" ]; then
        # The image's own host keys must not be offered beside ours, and the drop-in must be read first.
        if grep -qi '^[[:space:]]*HostKey[[:space:]=]' "$main"; then
            put "$main" 600 "$(sed 's/^[[:space:]]*[Hh][Oo][Ss][Tt][Kk][Ee][Yy][[:space:]=]/#&/' "$main")"
        fi
        if ! grep -qi '^[[:space:]]*Include[[:space:]].*sshd_config\.d/' "$main"; then
            put "$main" 600 "Include $etc/ssh/sshd_config.d/*.conf
$(cat "$main")"
        fi
    else
        put "$main" 600 "Include $etc/ssh/sshd_config.d/*.conf"
    fi
    if command -v restorecon >/dev/null 2>&1; then restorecon -R "$etc/costgpu" >/dev/null 2>&1; fi
    if has_systemd; then
        for unit in ssh.service sshd.service; do
            systemctl try-reload-or-restart --no-block "$unit" >/dev/null 2>&1
        done
    elif [ "$etc" = /etc ] && [ -f /run/sshd.pid ]; then
        read -r daemon </run/sshd.pid && kill -HUP "$daemon" 2>/dev/null
    fi
fi

# An agent that was there before a reboot; with systemd its own unit brings it back.
if [ -x "$home/agent" ] && ! has_systemd; then
    /bin/sh "$home/agent" serve </dev/null >/dev/null 2>&1 &
fi
exit 0
