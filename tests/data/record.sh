#!/usr/bin/env bash
# record.sh BIN - record demo.route.csv.gz anew: 16 conversations of two turns with the demo model.
set -euo pipefail
bin=${1:?directory of the programs}
here=$(cd "$(dirname "$0")" && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
while IFS='|' read -r first second; do
    printf '%s\n%s\n/clear\n' "$first" "$second"
done >"$scratch/lines" <<'LINES'
There was once a young fisherman who lived by the sea.|And what happened in the winter?
Dear Carmen, it rained all week and the roof leaks.|Will you come to see us?
Monday. Today the market was full of people.|Tuesday. I could not sleep.
A fox and a crow met at the old mill.|What did the crow say?
Who was Vera?|Where did she live?
It was the last day of summer in Little Fenn.|The bell rang twice.
The baker lost her ring on the bridge.|Then everybody looked for it.
How do you make a kite?|And if there is no wind?
The village of Lindenau lies between two hills.|Who lives in the mill?
Once there were three brothers who could not agree.|The eldest laughed.
A storm came up over the bay.|In the morning the boat was gone.
My dear brother, I have found work at last.|The master is strict but kind.
The old clock in the tower stood still.|Nobody knew how to mend it.
Two friends planted a pear tree behind the house.|After ten years they came back.
The goose would not go into the water.|What did the children do?
Friday. The train was late again.|Saturday. We baked bread.
LINES
OMP_WAIT_POLICY=passive SLUICE_LOOKAHEAD=0 "$bin/sluice" chat -m "$here/../../models/demo.gguf" -c 512 -n 100 --seed 20261130 \
    --cache 3MiB --cache-policy lru -q --route-trace "$scratch/demo.route.csv" <"$scratch/lines" >/dev/null
# The path of the model is this machine's: the trace is for everybody.
sed -i 's|^# model=[^ ]*|# model=models/demo.gguf|' "$scratch/demo.route.csv"
gzip -9nc "$scratch/demo.route.csv" >"$here/demo.route.csv.gz"
