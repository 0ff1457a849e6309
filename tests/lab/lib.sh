# shellcheck shell=sh
# Shared by the scripts in a lab, beside those of the command: whether there can be one, and how it is taken down. They set $lab.
. "$(dirname "$0")/../cli/lib.sh"
where=10.77.1.254 # the first rack's switch
space=test$$      # its name: hosts of another lab have the same addresses, and are not the same
# shellcheck disable=SC2034 # for the scripts
place=pawl://$where:7070/$space

[ "$(id -u)" -eq 0 ] || { echo "SKIP: network namespaces need root"; exit 77; }
command -v ip >/dev/null || { echo "SKIP: no ip(8); the Debian package is iproute2"; exit 77; }
"$pawl" doctor | grep -q '^ok *BPF and XDP' || { echo "SKIP: no programs for the kernel here: $("$pawl" doctor | grep 'BPF and XDP')"; exit 77; }

# shellcheck disable=SC2317,SC2154 # called by the trap
clean_up() {
    "$pawl" lab down --name "$lab"
    end
}
trap clean_up EXIT

# shellcheck disable=SC2317 # called by eventually
on() {
    host=$1
    shift
    "$pawl" lab exec "$host" --name "$lab" -- "$@"
}
# A daemon in the namespace of a rack's switch, whose own process number is in a file: rack, file, words.
daemon_in() {
    in_rack=$1
    role=$2
    shift 2
    rm -f "$scratch/$role.pid"
    # shellcheck disable=SC2016 # for the inner shell
    "$pawl" lab exec switch --rack "$in_rack" --name "$lab" -- sh -c 'echo $$ >"$0"; exec "$@"' "$scratch/$role.pid" "$pawl" "$@" \
        >"$scratch/$role" 2>&1 &
    started="$started $!"
    eventually test -s "$scratch/$role.pid"
}
# Whether a daemon has ended, by the file with its number. A process without an executable may still have its sockets.
# shellcheck disable=SC2317 # called by eventually
has_ended() {
    ! [ -e "/proc/$(cat "$1")" ] || grep -q '^State:.Z' "/proc/$(cat "$1")/status"
}
daemon() {
    daemon_in 1 "$@"
}
serve() {
    daemon serve serve --space "$space" --design fisslock --own 0 --listen $where:7070 --insecure --lease 10 --state "$scratch/state" "$@"
}
start_switch() {
    daemon switch switch --dev wire0 --join $where:7070 --space "$space" --listen $where:4747 "$@"
    eventually grep -q 'is ready' "$scratch/switch"
}
