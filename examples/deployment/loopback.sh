#!/usr/bin/env bash
# A whole federation on one machine: a hub, two sites and an operator's desk, from nothing to a trained model.
#
#   bash loopback.sh [FOLDER]        FOLDER is new, without blanks in its path; without it a temporary one is made
#
# It needs semifl[flare] in the active environment. It ends all that it starts, also after Ctrl-C or a failure.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
command -v semifl >/dev/null || { echo "semifl is not on the PATH: activate its environment first" >&2; exit 2; }
folder=${1:-$(mktemp -d)}
[[ ! -e $folder/project.toml ]] || { echo "$folder holds a federation already: name a new folder" >&2; exit 2; }
mkdir -p "$folder" && cd "$folder"
export PYTHONUNBUFFERED=1

started=""
finish() {
  trap - EXIT INT TERM
  for process in $started; do kill "$process" 2>/dev/null || true; done
  for process in $started; do wait "$process" 2>/dev/null || true; done
}
trap finish EXIT
trap 'exit 130' INT TERM

say() { printf '\n== %s\n' "$*"; }

passphrase() { awk -v name="$1" '$1 == name { print $NF }' kits.txt; }

start() {  # start NAME KIND: what each machine's owner types, in the background
  local name=$1 kind=$2
  SEMIFL_KIT_PASSPHRASE=$(passphrase "$name") \
    semifl deploy "$kind" "kits/$name.kit" --data "pictures/$name" --device cpu >"$name.out" 2>&1 &
  started="$started $!"
}

wait_for_sites() {
  for _ in $(seq 60); do
    semifl deploy status >status.txt 2>&1 && grep -q '2 of 2 sites connected' status.txt && return
    sleep 1
  done
  echo "the sites did not connect; see $PWD/*.out" >&2
  exit 1
}

say "pictures: a hub with 50 labels, two sites with 500 pictures each"
python "$here/make_pictures.py" pictures

say "who takes part"
port=$(python -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
semifl deploy init project.toml --name digits --hub 127.0.0.1 --port "$port" \
  --site clinic-a --site clinic-b --operator alice@example.org

say "a sealed kit for each of them"
(umask 077 && semifl deploy kits project.toml >kits.txt)
sed -E 's/[a-z2-7]{4}(-[a-z2-7]{4}){5}$/(hidden here)/' kits.txt

say "hub and sites start"
start hub hub
start clinic-a site
start clinic-b site

say "the operator trains"
SEMIFL_KIT_PASSPHRASE=$(passphrase alice@example.org)
export SEMIFL_KIT_PASSPHRASE  # needed once: the first command opens the kit
wait_for_sites
cat status.txt
semifl deploy run "$here/run.toml"

say "afterwards"
semifl deploy status
for name in clinic-a clinic-b hub; do semifl deploy stop "kits/$name"; done

say "done"
echo "the report: $PWD/runs/run-seed-0/report.html"
