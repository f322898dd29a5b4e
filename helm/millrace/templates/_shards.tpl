{{/*
This file knows a worker's input streams, like internal/config/shards.go. config.stream may name several. The names of the other streams and
subjects may then be templates, in which {0} is the name of the input stream, and {1} is what the first * in its pattern stands for.
*/}}

{{/* millrace.patterns returns the names and patterns of config.stream as a JSON list. The argument is .Values.config. */}}
{{- define "millrace.patterns" -}}
{{- $patterns := list -}}
{{- range splitList "," .stream -}}
{{- $patterns = append $patterns (trim .) -}}
{{- end -}}
{{ toJson $patterns }}
{{- end }}

{{/* millrace.manyStreams is not empty if config.stream has several names, or a pattern. The argument is .Values.config. */}}
{{- define "millrace.manyStreams" -}}
{{- if regexMatch "[,*]" .stream -}}
yes
{{- end -}}
{{- end }}

{{/* millrace.placeholder returns a regular expression for {0} and {1}. */}}
{{- define "millrace.placeholder" -}}
\{[0-9]+\}
{{- end }}

{{/*
millrace.omitted returns the keys of config whose variables the chart doesn't set, as a JSON list. Their defaults depend on the input streams, and
only the worker knows these. The argument is .Values.config.
*/}}
{{- define "millrace.omitted" -}}
{{- $keys := list -}}
{{- if and (include "millrace.manyStreams" .) (eq (join "," .subjects) "ingest.>") -}}
{{- $keys = append $keys "subjects" -}}
{{- end -}}
{{- if regexMatch (include "millrace.placeholder" .) .resultStream -}}
{{- if eq .resultPrefix "results" -}}
{{- $keys = append $keys "resultPrefix" -}}
{{- end -}}
{{- if eq .deadletterPrefix "deadletter" -}}
{{- $keys = append $keys "deadletterPrefix" -}}
{{- end -}}
{{- end -}}
{{ toJson $keys }}
{{- end }}

{{/*
millrace.shards returns the names of a sample for each name or pattern of config.stream, as a JSON list of maps. In a sample, every * stands for x.
The argument is .Values.config.
*/}}
{{- define "millrace.shards" -}}
{{- $config := . -}}
{{- $omitted := include "millrace.omitted" . | fromJsonArray -}}
{{- $suffix := join "-" (prepend (regexFindAll (include "millrace.placeholder" .) .resultStream -1) "") -}}
{{- $shards := list -}}
{{- range include "millrace.patterns" . | fromJsonArray -}}
{{- $stream := replace "*" "x" . -}}
{{- $subjects := has "subjects" $omitted | ternary (list (lower $stream | printf "%s.>")) $config.subjects -}}
{{- $names := dict "resultStream" $config.resultStream "subjects" $subjects -}}
{{- range list "resultPrefix" "deadletterPrefix" -}}
{{- $_ := set $names . (printf "%s%s" (get $config .) (has . $omitted | ternary $suffix "")) -}}
{{- end -}}
{{- $names = regexReplaceAllLiteral "\\{[1-9]\\}" (toJson $names) "x" | replace "{0}" (toJson $stream | trimPrefix "\"" | trimSuffix "\"") | fromJson -}}
{{- $shards = append $shards (merge (dict "stream" $stream) $names (pick $config "commitPrefix" "delivery" "exactlyOnce")) -}}
{{- end -}}
{{ toJson $shards }}
{{- end }}

{{/* millrace.templateProblems returns the problems of several streams and of templates. */}}
{{- define "millrace.templateProblems" -}}
{{- $provisions := or .Values.config.provision .Values.nats.embedded.enabled }}
{{- with .Values.config }}
{{- $placeholder := include "millrace.placeholder" . }}
{{- $patterns := include "millrace.patterns" . | fromJsonArray }}
{{- $omitted := include "millrace.omitted" . | fromJsonArray }}
{{- $subjects := join "," .subjects }}
{{- $fewest := 9 }}
{{- range $patterns }}
{{- $fewest = regexFindAll "[*]" . -1 | len | min $fewest }}
{{- end }}
{{- $names := dict "resultStream" .resultStream "resultPrefix" .resultPrefix "deadletterPrefix" .deadletterPrefix "subjects" $subjects }}
{{- range $key, $text := or (include "millrace.manyStreams" .) (values $names | join "" | contains "{") | empty | ternary dict $names }}
{{- range regexFindAll $placeholder $text -1 | uniq }}
{{- if or (gt (len .) 3) (gt (regexFind "[0-9]" . | int64) $fewest) }}
config.{{ $key }} has {{ . }}, which stands for a * that a name or pattern of config.stream doesn't have: use {0} for the whole name of the input stream
{{- end }}
{{- end }}
{{- if regexMatch "[{}]" (regexReplaceAllLiteral $placeholder $text "") }}
config.{{ $key }} is {{ $text | quote }}, which has braces that are no placeholder: use {0} for the name of the input stream, or {1} for what the first * in its pattern stands for
{{- end }}
{{- end }}
{{- if include "millrace.manyStreams" . }}
{{- if ne (len $patterns) (uniq $patterns | len) }}
config.stream is {{ .stream | quote }}, which names a stream twice: name each stream once
{{- end }}
{{- if and (not (has "resultPrefix" $omitted)) (ne (regexMatch $placeholder .resultStream) (regexMatch $placeholder .resultPrefix)) }}
config.resultStream is {{ .resultStream }} and config.resultPrefix is {{ .resultPrefix }}, and only one of them depends on the input stream: use a placeholder in both, such as RESULTS-{0} and results-{0}, or in neither, so that one stream stores all results
{{- end }}
{{- if and (eq .delivery "exclusive") (not (regexMatch $placeholder .resultStream)) }}
config.delivery is exclusive, and results of several input streams can't be in one stream then: set config.resultStream to a template, such as RESULTS-{0}
{{- end }}
{{- $own := list }}
{{- range include "millrace.shards" . | fromJsonArray }}
{{- $results := .resultStream }}
{{- range $patterns }}
{{- if regexMatch (regexQuoteMeta . | replace "\\*" ".*" | printf "^%s$") $results }}
{{- $own = append $own $results }}
{{- end }}
{{- end }}
{{- end }}
{{- range uniq $own }}
config.stream names the result stream {{ . }} too, so the worker would read its own output for ever: set another config.resultStream, or a narrower pattern
{{- end }}
{{- if and $provisions (not (has "subjects" $omitted)) (not (contains "*" .stream)) (not (regexMatch $placeholder $subjects)) }}
config.subjects is {{ $subjects | quote }} for each of several streams, and the server refuses streams with the same subjects: leave it out, or use {0} for the name of the input stream
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/*
millrace.nameProblems returns the problems of streams, subjects and prefixes. With several streams, it checks the samples until one has a problem,
because the others would repeat it.
*/}}
{{- define "millrace.nameProblems" -}}
{{- $provisions := or .Values.config.provision .Values.nats.embedded.enabled }}
{{- $problems := include "millrace.templateProblems" . }}
{{- range include "millrace.shards" .Values.config | fromJsonArray }}
{{- if not (trim $problems) }}
{{- $problems = printf "%s%s" (include "millrace.subjectProblems" .) (include "millrace.commitProblems" .) }}
{{- if and (eq .stream .resultStream) $provisions }}
{{- $problems = printf "%s\nconfig.stream and config.resultStream are both %s, and the worker creates two streams: set another name for one of them" $problems .stream }}
{{- end }}
{{- end }}
{{- end }}
{{ $problems }}
{{- end }}
