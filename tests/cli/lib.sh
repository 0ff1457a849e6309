# shellcheck shell=sh
# What the tests of the command share: a space of their own, removed at the end, and how to say what is expected.
set -u
LC_ALL=C
export LC_ALL
pawl=${PAWL_BUILD:-build}/pawl
scratch=$(mktemp -d)
PAWL_SPACE=local:$scratch/space
export PAWL_SPACE
started= # background processes of this test; nobody else's are ever touched

end() {
    for pid in $started; do
        kill -KILL "$pid" 2>/dev/null
    done
    rm -rf "$scratch"
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

# eventually COMMAND...: true within ten seconds.
eventually() {
    for _ in $(seq 200); do
        "$@" && return 0
        sleep 0.05
    done
    fail "did not come true: $*"
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

# One JSON value and nothing else, if there is somebody to ask.
is_json() {
    if python3 -c '' 2>/dev/null; then
        python3 -m json.tool <"$1" >/dev/null 2>&1 || fail "not JSON: $(cat "$1")"
    fi
}
out_is_json() {
    is_json "$scratch/out"
}
