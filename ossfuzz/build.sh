#!/usr/bin/env bash
# Builds every fuzz target of every module with libFuzzer, as OSS-Fuzz calls it: it sets OUT, WORK, CXX, CXXFLAGS, LIB_FUZZING_ENGINE and
# SANITIZER. With --list it prints the targets instead: folder, package and function.
#
# OSS-Fuzz's own compile_native_go_fuzzer compiles copies of test files with another package testing, which ours don't compile with: they have
# benchmarks, helpers in other files and packages of their own. Here they are compiled as they are; see internal/libfuzzer.
set -euo pipefail
cd "$(git rev-parse --show-toplevel)"

list() {
	git grep --untracked -E '^func Fuzz\w+\(\w+ \*testing\.F\)' -- '*_test.go' | sort | while IFS=: read -r file function; do
		function=${function#func }
		echo "$(dirname "$file") $(sed -n 's/^package //p' "$file" | head -n 1) ${function%%(*}"
	done
}

if [ "${1:-}" = --list ]; then
	list
	exit
fi

ONLY=${ONLY:-} # a pattern of names, to build some of them by hand
while read -r -u 3 folder package function; do
	name=$([ "$folder" = . ] && echo filo || echo "${folder//\//_}")_$function
	if [[ ! $name =~ $ONLY ]]; then continue; fi
	echo "== $name"
	if [[ ${SANITIZER:-address} == *coverage* ]]; then
		# Counts by go test, so that what it compiles is what OSS-Fuzz expects.
		(cd "$folder" && compile_native_go_fuzzer_v2 "$(go list .)" "$function" "$name")
		continue
	fi
	cat >"$WORK/target_test.go" <<-EOF
		package $package

		import "github.com/filohttp/filo/internal/libfuzzer"

		func init() { libfuzzer.Target("$function", $function) }
	EOF
	printf '{"Replace": {"%s": "%s"}}' "$(realpath "$folder")/libfuzzer_target_test.go" "$WORK/target_test.go" >"$WORK/overlay.json"
	(cd "$folder" && go test -c -buildmode=c-archive -overlay "$WORK/overlay.json" -tags libfuzzer -gcflags=all=-d=libfuzzer -trimpath -o "$WORK/$name.a" .)
	# shellcheck disable=SC2086 # several options each
	$CXX $CXXFLAGS $LIB_FUZZING_ENGINE "$WORK/$name.a" -o "$OUT/$name"
	rm -rf "$WORK/$name.a" "$WORK/seeds"
	mkdir "$WORK/seeds"
	FILO_FUZZ_SEEDS=$WORK/seeds "$OUT/$name"
	(cd "$WORK/seeds" && zip -q -r "$OUT/${name}_seed_corpus.zip" .)
done 3< <(list)
