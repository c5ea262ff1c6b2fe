#!/usr/bin/env bash
# pages.sh - manual pages and completions: well formed, and complete. What is complete is read from the help pages:
# they print the parser's tables.
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tests/install/lib.sh
. "$here/lib.sh"
sluice=$TREE/bin/sluice
man=$TREE/share/man/man1
bash_file=$TREE/share/bash-completion/completions/sluice
zsh_file=$TREE/share/zsh/site-functions/_sluice
fish_file=$TREE/share/fish/vendor_completions.d/sluice.fish

# The options of a help page, one per line: of "  -c, --ctx, --ctx-size N  help" all three.
options_of() { # COMMAND
    "$sluice" "$1" --help | sed -nE 's/^ {2,6}(-[^ ,]+(, -[^ ,]+)*).*/\1/p' | sed 's/, /\n/g' | sort -u
}

# What bash offers for a command line, one per line, as it asks a completion function.
bash_offers() { # WORD...
    bash --norc --noprofile -c '
        . "$1"
        shift
        COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
        "$(complete -p sluice | sed "s/.*-F \([^ ]*\) .*/\1/")" sluice
        printf "%s\n" "${COMPREPLY[@]}"' bash "$bash_file" "$@" | sort -u
}

commands=$("$sluice" --help | sed -nE 's/^  ([a-z]+) .*/\1/p')
if [ "$(wc -w <<<"$commands")" -ge 10 ]; then ok "$(wc -w <<<"$commands") commands"; else fail "commands: $commands"; fi
same "bash: the commands" "$(sort <<<"$commands")" "$(bash_offers sluice '' | grep -v '^-')"
for command in $commands; do
    options=$(options_of "$command")
    [ "$(wc -l <<<"$options")" -ge 3 ] || fail "sluice $command --help: only the options $options"
    page=$man/sluice-$command.1
    [ -s "$page" ] || fail "sluice-$command.1 is not there"
    same "sluice $command: bash offers what it takes" "$options" "$(bash_offers sluice "$command" -)"
    plain=$(sed 's/\\f[BIR]//g; s/\\-/-/g' "$page")
    zsh=$(sed -n "/^    $command)/,/^        ;;/p" "$zsh_file")
    fish=$(grep -E -- "-n '__sluice_in $command'" "$fish_file")
    for option in $options; do
        grep -qE -- "^(-[^ ]+, )*$option(,| |\$)" <<<"$plain" || fail "sluice-$command.1 does not tell of $option"
        case $option in
        -h | --help) grep -qF -- "{-h,--help}" <<<"$zsh" || fail "zsh: $command $option" ;;
        *) grep -qE -- "'\*$option=?\[" <<<"$zsh" || fail "zsh: sluice $command does not complete $option" ;;
        esac
        case $option in
        --*) grep -qE -- " -l ${option#--}( |\$)" <<<"$fish" || fail "fish: sluice $command does not complete $option" ;;
        *) grep -qE -- " -s ${option#-}( |\$)" <<<"$fish" || fail "fish: sluice $command does not complete $option" ;;
        esac
    done
    grep -qE "^\.BR sluice\\\\-$command \(1\)" "$man/sluice.1" || fail "sluice.1 does not name sluice-$command"
    # The words of the help, too: what a page says is what --help says.
    text=$(sed 's/\\e/\\/g; s/\\(aq/'"'"'/g; s/\\(ga/`/g; s/\\(ha/^/g; s/\\(ti/~/g; s/^\\&//' <<<"$plain" | tr -s ' \n' '  ')
    help=$("$sluice" "$command" --help | sed -nE '/^ {10,}[^ ]/{s/^ *//p}' | grep -E '^[a-z].{40,}' | head -n 3)
    while IFS= read -r line; do
        [ -z "$line" ] || grep -qF -- "$(tr -s ' ' <<<"$line")" <<<"$text" || fail "sluice-$command.1 does not say: $line"
    done <<<"$help"
done

# A real bash on a terminal, and the Tab key. The line is then ended and sent off, which no PATH lets succeed: then the shell is ready for the next.
script=$(printf '%s\n' 'wait ready$' "send PATH=/nowhere; . '$bash_file'" "type sluice run --ca$(printf '\t\t\t')" 'wait --cache-policy' \
    'send -policy lru' 'wait not found' 'send exit 0' 'exit 0')
if PS1='ready$ ' INPUTRC=/dev/null "$BUILD/bin/cli-terminal" bash --norc --noprofile -i <<<"$script" >"$work/out" 2>"$work/err"; then
    ok "bash: sluice run --ca<Tab>"
else
    fail "bash: sluice run --ca<Tab>: $(cat "$work/err"): $(tail -c 300 "$work/out")"
fi
same "bash: --ca" $'--cache\n--cache-floor\n--cache-policy' "$(bash_offers sluice run --ca)"
same "bash: words of a value" $'cycle\nlru' "$(bash_offers sluice run --cache-policy '')"
same "bash: after an equals sign" lru "$(bash_offers sluice run --cache-policy = l)"
cd "$work" && touch m.gguf notes.txt && mkdir models
same "bash: a model is a GGUF file" $'m.gguf\nmodels' "$(bash_offers sluice run -m m)"
same "bash: a file is any" notes.txt "$(bash_offers sluice run --csv n)"
same "bash: info takes a model" m.gguf "$(bash_offers sluice info m.)"
same "bash: exec takes a program" basename "$(bash_offers sluice exec --cache 1 -- basena)"

bash -n "$bash_file" || fail "bash: syntax"
for shell in zsh fish; do
    if ! command -v "$shell" >/dev/null; then
        echo "note: no $shell here: its completion was only looked at"
        continue
    fi
    if [ "$shell" = zsh ]; then works "zsh: syntax" zsh -n "$zsh_file"; else works "fish: syntax" fish -n "$fish_file"; fi
done
if command -v fish >/dev/null; then
    same "fish: --ca" $'--cache\n--cache-floor\n--cache-policy' \
        "$(HOME=$work fish --no-config -c "source '$fish_file'; complete -C 'sluice run --ca'" | cut -f1 | sort)"
fi
if command -v zsh >/dev/null; then
    script=$(printf '%s\n' 'wait ready>' "send PATH=/nowhere; fpath=('$(dirname "$zsh_file")' \$fpath); autoload -Uz compinit; compinit -u -D; setopt no_list_beep; echo d'o'ne" \
        'wait done' "type sluice run --cache-p$(printf '\t')" 'wait --cache-policy' 'send lru' 'wait not found' 'send exit 0' 'exit 0')
    if PS1='ready> ' TERM=dumb "$BUILD/bin/cli-terminal" zsh -f -i <<<"$script" >"$work/out" 2>"$work/err"; then
        ok "zsh: sluice run --cache-p<Tab>"
    else
        fail "zsh: sluice run --cache-p<Tab>: $(cat "$work/err"): $(tail -c 300 "$work/out")"
    fi
fi

for page in "$man"/*.1; do
    said=$(man --warnings -E UTF-8 -l "$page" 2>&1 >/dev/null)
    [ -z "$said" ] || fail "man --warnings: $said"
    ! command -v mandoc >/dev/null || said=$(mandoc -T lint -W warning "$page")
    [ -z "$said" ] || fail "mandoc: $said"
done
n=$(find "$man" -name '*.1' | wc -l)
if [ "$n" -ge 11 ]; then ok "$n manual pages, no warnings"; else fail "only $n manual pages"; fi
MANPATH=$TREE/share/man works "man sluice-run" man -P cat sluice-run
grep -q 'generate text from a prompt' "$work/out" || fail "man sluice-run: $(head -n 5 "$work/out")"
finish
