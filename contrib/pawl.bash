# SPDX-License-Identifier: Apache-2.0
# Completion of the command for bash. Subcommands and options are those of `pawl --help` and `pawl COMMAND --help`, asked each time: there
# is no second list that could differ.
_pawl() {
    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} command=${COMP_WORDS[1]} i
    COMPREPLY=()
    for ((i = 2; i < COMP_CWORD; i++)); do
        if [[ ${COMP_WORDS[i]} == -- ]]; then # a command of the user's own
            mapfile -t COMPREPLY < <(compgen -c -- "$word")
            return
        fi
    done
    if ((COMP_CWORD == 1)); then
        mapfile -t COMPREPLY < <(compgen -W "$("${COMP_WORDS[0]}" --help 2>/dev/null | sed -n 's/^  \([a-z][a-z]*\)  .*/\1/p') --help --version" -- "$word")
    elif [[ $before == --space ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$("${COMP_WORDS[0]}" space list 2>/dev/null | sed -n 's/.* \(local:[^ ]*\)$/\1/p')" -- "$word")
    elif [[ $word == -* ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$("${COMP_WORDS[0]}" "$command" --help 2>/dev/null | grep -oE '^  (-.,|   ) --[a-z-]+' | grep -oE -- '--[a-z-]+')" -- "$word")
    else
        mapfile -t COMPREPLY < <(compgen -f -- "$word")
    fi
}
complete -o bashdefault -F _pawl pawl
