# shellcheck shell=sh
# Shared by the tests of the command: a space of their own, removed at the end, and how to say what is expected. A busy machine may
# stop any process for seconds: leases of racks are longer than that, and a holder keeps its lock until it is told to end.
set -u
LC_ALL=C
export LC_ALL
pawl=${PAWL_BUILD:-build}/pawl
scratch=$(mktemp -d)
PAWL_SPACE=local:$scratch/space
XDG_STATE_HOME=$scratch/state # where coordinators write: two that have the same space must not meet there
export PAWL_SPACE XDG_STATE_HOME
started= # background processes of this test; no others are ever touched

end() {
    for pid in $started; do
        kill -KILL "$pid" 2>/dev/null
    done
    rm -rf "$scratch"
    [ -z "${space:-}" ] || rm -f "/dev/shm/pawl.$(id -u).net.$space".* # of hosts whose last process was killed
}
trap end EXIT
trap 'exit 1' INT TERM

fail() {
    echo "FAIL: $*"
    for what in out err; do
        if [ -s "$scratch/$what" ]; then
            echo "-- std$what of the last command:"
            cat "$scratch/$what"
        fi
    done
    for what in serve second switch backup again; do # what daemons have said
        if [ -s "$scratch/$what" ]; then
            echo "-- $what:"
            cat "$scratch/$what"
        fi
    done
    exit 1
}

# expect STATUS COMMAND...: its output is in $scratch/out and $scratch/err afterwards.
expect() {
    wanted=$1
    shift
    "$@" >"$scratch/out" 2>"$scratch/err"
    got=$?
    [ $got -eq "$wanted" ] || fail "'$*' exited with $got, not $wanted"
}

out_has() {
    grep -q -e "$1" "$scratch/out" || fail "nothing like '$1' in the output"
}

err_has() {
    grep -q -e "$1" "$scratch/err" || fail "nothing like '$1' in the complaint"
}


# start COMMAND...: in the background, as a terminal would: a shell's own '&' would have it ignore SIGINT. Sets $pid.
start() {
    env --default-signal=HUP,INT,QUIT,TERM "$@" &
    pid=$!
    started="$started $pid"
}

# ended PID STATUS
ended() {
    wait "$1"
    got=$?
    [ $got -eq "$2" ] || fail "process $1 exited with $got, not $2"
}

# eventually COMMAND...: true within half a minute, whatever else the machine has to do.
eventually() {
    for _ in $(seq 600); do
        "$@" && return 0
        sleep 0.05
    done
    fail "did not come true: $*"
}

# ready FILE: waits until a daemon says there where it is; sets $at.
ready() {
    eventually grep -q ' at ' "$1"
    # shellcheck disable=SC2034 # for the caller
    at=$(sed -n 's/.* at //p' "$1")
}

# is_pawl PID: whether the process has become the command. Between fork and exec it is a copy of this shell, which catches signals, too.
is_pawl() {
    [ "$(readlink "/proc/$1/exe")" = "$(readlink -f "$pawl")" ]
}

# takes PID SIGNAL: whether the command runs and handles the signal (a number). The mask is read after the check for the command: exec
# resets the mask, so that every handler seen then was installed by the command.
takes() {
    is_pawl "$1" || return 1
    mask=$(sed -n 's/^SigCgt:[[:space:]]*//p' "/proc/$1/status" 2>/dev/null)
    [ -n "$mask" ] && [ $((0x${mask#????????} >> ($2 - 1) & 1)) = 1 ]
}

# has_worked PID: whether the process and its children have used a fifth of a second of processor time, however long that took.
has_worked() {
    ticks=$(cat /proc/[0-9]*/stat 2>/dev/null | awk -v pid="$1" '$1 == pid || $4 == pid { sum += $14 + $15 } END { print sum + 0 }')
    [ "$ticks" -ge $(($(getconf CLK_TCK) / 5)) ]
}

# keeper PID: the process that has the session of a `pawl lock` with that id. It lives while the lock is held or awaited.
keeper() {
    for child in $(cat "/proc/$1/task/$1/children"); do
        [ "$(cat "/proc/$child/comm")" = pawl ] && echo "$child"
    done
}

# How many hold or wait for a lock, of the living.
holders() {
    "$pawl" show "$1" | sed -n 's/^holders  *//p'
}
waiters() {
    "$pawl" show "$1" | sed -n 's/^waiters  *//p'
}
is_held() {
    [ "$(holders "$1" 2>/dev/null)" = "${2:-1}" ]
}
is_awaited() {
    [ "$(waiters "$1" 2>/dev/null)" = "${2:-1}" ]
}

# One JSON value and nothing else, if python3 is there to check it.
is_json() {
    if python3 -c '' 2>/dev/null; then
        python3 -m json.tool <"$1" >/dev/null 2>&1 || fail "not JSON: $(cat "$1")"
    fi
}
out_is_json() {
    is_json "$scratch/out"
}
