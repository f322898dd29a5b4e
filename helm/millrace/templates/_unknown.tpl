{{/*
This file names values that are unknown to the chart. The schema permits them, because Helm checks the schema first, and the schema's error
wouldn't suggest a known value. files/names.yaml has the names. helm/test generates it from the schema, and fails if it is out of date.
*/}}

{{/*
millrace.checkNames fails if there are unknown values. helm lint only logs the text of fail. So the second include, whose template doesn't exist,
ends it with an error.
*/}}
{{- define "millrace.checkNames" -}}
{{- $unknown := include "millrace.unknownValues" . -}}
{{- include "millrace.refuse" $unknown -}}
{{- with compact (splitList "\n" $unknown) -}}
{{- include (join "; " .) $ -}}
{{- end -}}
{{- end }}

{{/* millrace.unknownValues returns one line for each unknown value. */}}
{{- define "millrace.unknownValues" -}}
{{- $names := .Files.Get "files/names.yaml" | fromYaml }}
{{- range $path, $known := $names }}
{{- $map := $.Values }}
{{- range compact (splitList "." $path) }}
{{- if kindIs "map" $map }}
{{- $map = get $map . }}
{{- end }}
{{- end }}
{{- if kindIs "map" $map }}
{{- range $key := keys $map | sortAlpha }}
{{- if not (has $key $known) }}
{{- include "millrace.unknownValue" (dict "names" $names "path" $path "key" $key "value" (get $map $key)) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/*
millrace.unknownValue returns one line for an unknown value, or for each value in it if it is a map. Its path is the path of the map that
contains the key.
*/}}
{{- define "millrace.unknownValue" -}}
{{- $at := .path | empty | ternary "" (print .path ".") }}
{{- $wrong := list .key }}
{{- if and (kindIs "map" .value) .value }}
{{- $wrong = list }}
{{- range keys .value | sortAlpha }}
{{- $wrong = append $wrong (print $.key "." .) }}
{{- end }}
{{- end }}
{{- range $wrong }}
{{- $meant := include "millrace.meant" (dict "names" $.names "path" $.path "wrong" . "full" (print $at .)) | fromJsonArray }}
{{ $at }}{{ . }} is not a value of this chart: {{ if $meant }}did you mean {{ join " or " $meant }}?{{ else }}{{ $.path | default "the chart" }} has {{ get $.names $.path | join ", " }}{{ end }}
{{- end }}
{{- end }}

{{/*
millrace.meant returns the paths of one or two values with a similar name, as a JSON list. The list is empty if no name is similar. It first
searches the same map, then the names of all values, and then their whole paths. The unknown value is "wrong" in the map "path", and "full" is
its whole path.
*/}}
{{- define "millrace.meant" -}}
{{- $path := .path }}
{{- $own := dict }}
{{- $last := dict }}
{{- $whole := dict }}
{{- range $at, $known := .names }}
{{- range $name := $known }}
{{- $full := $at | empty | ternary $name (printf "%s.%s" $at $name) }}
{{- if eq $at $path }}
{{- $_ := set $own $full $name }}
{{- end }}
{{- $_ := set $last $full $name }}
{{- $_ := set $whole $full $full }}
{{- end }}
{{- end }}
{{- $meant := include "millrace.nearest" (dict "wrong" .wrong "among" $own "byWord" true) | fromJsonArray }}
{{- range list (dict "wrong" .wrong "among" $last "byWord" false) (dict "wrong" .full "among" $whole "byWord" false) }}
{{- if not $meant }}
{{- $meant = include "millrace.nearest" . | fromJsonArray }}
{{- end }}
{{- end }}
{{- le (len $meant) 2 | ternary $meant list | toJson }}
{{- end }}

{{/*
millrace.nearest returns the keys of the map "among" whose text is nearest to "wrong", as a JSON list. It ignores case, dots, dashes and
underscores. It permits one typing error for each three letters, and at most two. With byWord, it permits four in a text of several words if the
first word is right, as in batchSize and batchBytes.
*/}}
{{- define "millrace.nearest" -}}
{{- $wrong := lower .wrong | replace "." "" | replace "-" "" | replace "_" "" }}
{{- $near := list }}
{{- $least := 5 }}
{{- range $path, $text := .among }}
{{- $most := div (len $wrong) 3 | min 2 | int }}
{{- $word := regexFind "^[a-z]+" $text }}
{{- if and $.byWord (ne $word $text) (eq $word (regexFind "^[a-z]+" $.wrong)) }}
{{- $most = 4 }}
{{- end }}
{{- $text = lower $text | replace "." "" }}
{{- if le (sub (max (len $wrong) (len $text)) (min (len $wrong) (len $text)) | int) $most }}
{{- $distance := include "millrace.distance" (list $wrong $text) | int }}
{{- if and (le $distance $most) (lt $distance $least) }}
{{- $near = list $path }}
{{- $least = $distance }}
{{- else if and (le $distance $most) (eq $distance $least) }}
{{- $near = append $near $path }}
{{- end }}
{{- end }}
{{- end }}
{{- toJson $near }}
{{- end }}

{{/* millrace.distance returns the Levenshtein distance of two texts, like the worker (internal/config/unknown.go). */}}
{{- define "millrace.distance" -}}
{{- $b := splitList "" (index . 1) -}}
{{- $row := until (len $b | add1 | int) -}}
{{- range $i, $x := splitList "" (index . 0) -}}
{{- $next := list (add1 $i) -}}
{{- range $j, $y := $b -}}
{{- $next = append $next (min (last $next | add1) (index $row (add1 $j | int) | add1) (eq $x $y | ternary 0 1 | add (index $row $j))) -}}
{{- end -}}
{{- $row = $next -}}
{{- end -}}
{{- last $row -}}
{{- end }}
