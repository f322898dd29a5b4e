{{/*
Operators of your own: their folders in a pod, and their names in config.operators. Lists are JSON, because a template returns text.
*/}}

{{/* millrace.builtInOperators returns the names of the operators that need no file. helm/test compares it with the worker. */}}
{{- define "millrace.builtInOperators" -}}
["crc32c","minhash","quality","neardup"]
{{- end }}

{{/* millrace.operatorFolders returns the folders that the chart mounts. The last part of a path is the name of its volume. */}}
{{- define "millrace.operatorFolders" -}}
{{- $folders := list -}}
{{- with .Values.operators -}}
{{- if .sources }}{{ $folders = append $folders "/etc/millrace/operators/sources" }}{{ end -}}
{{- if .configMap }}{{ $folders = append $folders "/etc/millrace/operators/config-map" }}{{ end -}}
{{- if .volume }}{{ $folders = append $folders "/etc/millrace/operators/volume" }}{{ end -}}
{{- end -}}
{{ toJson $folders }}
{{- end }}

{{/* millrace.operatorPath returns MILLRACE_OPERATOR_PATH: the folders that the chart mounts, and config.operatorPath. */}}
{{- define "millrace.operatorPath" -}}
{{ append (include "millrace.operatorFolders" . | fromJsonArray) .Values.config.operatorPath | compact | join "," }}
{{- end }}

{{/* millrace.ownOperators returns the operators of your own in config.operators, with their parameters. */}}
{{- define "millrace.ownOperators" -}}
{{- $builtIn := include "millrace.builtInOperators" . | fromJsonArray -}}
{{- $own := list -}}
{{- range .Values.config.operators -}}
{{- if not (has (. | splitList "?" | first) $builtIn) -}}
{{- $own = append $own . -}}
{{- end -}}
{{- end -}}
{{ toJson $own }}
{{- end }}

{{/* millrace.idleSources returns the operators in operators.sources that config.operators doesn't name. */}}
{{- define "millrace.idleSources" -}}
{{- $named := list -}}
{{- range .Values.config.operators -}}
{{- $named = append $named (. | splitList "?" | first) -}}
{{- end -}}
{{- $idle := list -}}
{{- range $file, $text := .Values.operators.sources -}}
{{- if not (has (trimSuffix ".cu" $file) $named) -}}
{{- $idle = append $idle (trimSuffix ".cu" $file) -}}
{{- end -}}
{{- end -}}
{{ toJson $idle }}
{{- end }}

{{/* millrace.wantsNVRTC returns a text if the image must be the variant with NVRTC. */}}
{{- define "millrace.wantsNVRTC" -}}
{{- $texts := or .Values.operators.sources .Values.operators.configMap -}}
{{- if or (eq .Values.image.variant "nvrtc") (and (eq .Values.image.variant "auto") $texts) -}}
true
{{- end -}}
{{- end }}

{{/* millrace.inlineFiles returns the inline sources and tables by file name. */}}
{{- define "millrace.inlineFiles" -}}
{{ merge (dict) .Values.operators.sources .Values.operators.tables | toJson }}
{{- end }}

{{/*
millrace.sourcesName returns the name of the ConfigMap with the inline sources and tables. The name contains a hash of these texts. So a changed
text gets another ConfigMap, and Kubernetes replaces the Deployment's pods. The name has at most 63 characters.
*/}}
{{- define "millrace.sourcesName" -}}
{{ printf "%s-ops-%s" (include "millrace.fullname" .) (include "millrace.inlineFiles" . | sha256sum | trunc 8) }}
{{- end }}

{{/* millrace.cacheDir returns the folder for compiled operators that the chart mounts, or nothing without such operators. */}}
{{- define "millrace.cacheDir" -}}
{{- if and .Values.operators.cache.enabled (not .Values.config.cacheDir) (ne .Values.gpu.mode "none") (include "millrace.operatorPath" .) -}}
/var/cache/millrace
{{- end -}}
{{- end }}

{{- define "millrace.operatorVolumes" -}}
{{- $operators := .Values.operators -}}
{{- if $operators.sources }}
- name: sources
  configMap:
    name: {{ include "millrace.sourcesName" . }}
{{- end }}
{{- with $operators.configMap }}
- name: config-map
  configMap:
    name: {{ . }}
{{- end }}
{{- with $operators.volume }}
{{ toYaml (list (merge (dict "name" "volume") .)) }}
{{- end }}
{{- if include "millrace.cacheDir" . }}
{{ toYaml (list (merge (dict "name" "cache") ($operators.cache.volume | default (dict "emptyDir" (dict "sizeLimit" $operators.cache.sizeLimit))))) }}
{{- end }}
{{- end }}

{{- define "millrace.operatorMounts" -}}
{{- range include "millrace.operatorFolders" . | fromJsonArray }}
- name: {{ base . }}
  mountPath: {{ . }}
  readOnly: true
{{- end }}
{{- with include "millrace.cacheDir" . }}
- name: cache
  mountPath: {{ . }}
{{- end }}
{{- end }}

{{/* millrace.operatorProblems returns the settings that can't work, one problem in each line. */}}
{{- define "millrace.operatorProblems" -}}
{{- $builtIn := include "millrace.builtInOperators" . | fromJsonArray }}
{{- $bytes := 0 }}
{{- range $file, $text := .Values.operators.sources }}
{{- $bytes = add $bytes (len $file) (len $text) }}
{{- $name := trimSuffix ".cu" $file }}
{{- if not (regexMatch "^[a-z]([a-z0-9_]{0,29}[a-z0-9])?\\.cu$" $file) }}
operators.sources has {{ $file | quote }}: name it NAME.cu after its operator, which begins with a lower-case letter, continues with those, digits and underscores, ends with a letter or digit, and has at most 31 characters
{{- else if has $name $builtIn }}
operators.sources has {{ $file | quote }}, and {{ $name }} is the name of a built-in operator: choose another
{{- else if not (trim $text) }}
operators.sources has {{ $file | quote }} without a text: set it with --set-file 'operators.sources.{{ $name }}\.cu={{ $file }}', or in a values file
{{- end }}
{{- end }}
{{- range $file, $text := .Values.operators.tables }}
{{- $bytes = add $bytes (len $file) (len $text) }}
{{- if or (not (regexMatch "^[A-Za-z0-9_-][A-Za-z0-9._-]*$" $file)) (regexMatch "\\.(cu|cubin|fatbin|ptx|so)$" $file) }}
operators.tables has {{ $file | quote }}: use letters, digits, dots, hyphens and underscores, no dot at the beginning, and no ending of an operator's file such as .cu
{{- end }}
{{- end }}
{{- if and .Values.operators.tables (not .Values.operators.sources) }}
operators.tables has tables, and operators.sources no operator that could use them: a table is in the same place as its operator
{{- end }}
{{- if gt (int64 $bytes) 1048576 }}
operators.sources and operators.tables have {{ $bytes }} bytes, and a ConfigMap holds at most 1048576: put the files into a volume and set operators.volume
{{- end }}
{{- include "millrace.sourceProblems" . }}
{{- include "millrace.operatorNameProblems" . }}
{{- include "millrace.parameterProblems" .Values.config.operators }}
{{- end }}

{{/* The worker compiles sources on the node, for the node's GPU. */}}
{{- define "millrace.sourceProblems" -}}
{{- if .Values.operators.sources }}
{{- if or (eq .Values.gpu.mode "none") (eq .Values.config.device "host") }}
operators.sources has source files, which the image can compile only for a GPU: set gpu.mode, or compile them with worker operator build and put NAME.cpu.so into operators.configMap or operators.volume
{{- end }}
{{- if and (eq .Values.image.variant "plain") (not .Values.image.digest) }}
operators.sources has source files, and image.variant=plain has no NVRTC to compile them: set image.variant=auto or nvrtc
{{- end }}
{{- end }}
{{- end }}

{{/* If the chart knows every file, it knows every operator. */}}
{{- define "millrace.operatorNameProblems" -}}
{{- if not (or .Values.operators.configMap .Values.operators.volume .Values.config.operatorPath) }}
{{- range include "millrace.ownOperators" . | fromJsonArray }}
{{- $name := . | splitList "?" | first }}
{{- if not (hasKey $.Values.operators.sources (printf "%s.cu" $name)) }}
config.operators names {{ $name }}, which isn't built in ({{ include "millrace.builtInOperators" $ | fromJsonArray | join ", " }}): set operators.sources, operators.configMap or operators.volume to where {{ $name }}.cu is, or correct the name
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/* millrace.parameters returns the parameters of the built-in operators with their bounds or values. helm/test compares them with the worker. */}}
{{- define "millrace.parameters" -}}
{"crc32c": {}, "minhash": {"k": [1, 256], "hashes": [1, 1024], "seed": [0, 4294967295]}, "quality": {"ngrams": ["false", "true"]}, "neardup": {"bands": [1, 64], "rows": [1, 1024], "k": [1, 256], "seed": [0, 4294967295]}}
{{- end }}

{{/* The argument is config.operators. Parameters of operators of your own are in files that the chart can't read. */}}
{{- define "millrace.parameterProblems" -}}
{{- $known := include "millrace.parameters" . | fromJson }}
{{- $named := list }}
{{- range $spec := . }}
{{- $name := splitList "?" $spec | first }}
{{- if has $name $named }}
config.operators names {{ $name }} twice, and a result has one value for each name: remove one
{{- end }}
{{- $named = append $named $name }}
{{- if and (hasKey $known $name) (contains "?" $spec) }}
{{- $seen := list }}
{{- $parameters := get $known $name }}
{{- range trimPrefix (printf "%s?" $name) $spec | splitList "&" }}
{{- $parameter := splitList "=" . | first }}
{{- $value := trimPrefix (printf "%s=" $parameter) . }}
{{- $bounds := get $parameters $parameter }}
{{- if not (hasKey $parameters $parameter) }}
config.operators has {{ $spec | quote }}, and {{ $name }} has no parameter {{ $parameter | quote }}: {{ empty $parameters | ternary "it has none" (printf "it has %s" (keys $parameters | sortAlpha | join ", ")) }}
{{- else if has $parameter $seen }}
config.operators has {{ $spec | quote }} with {{ $parameter }} twice: remove one
{{- else if kindIs "string" (first $bounds) }}
{{- if not (has $value $bounds) }}
config.operators has {{ $spec | quote }}, where {{ $parameter }} is {{ $value | quote }}: set {{ join " or " $bounds }}
{{- end }}
{{- else if not (regexMatch "^[0-9]{1,18}$" $value) }}
config.operators has {{ $spec | quote }}, where {{ $parameter }} is {{ $value | quote }}: set a whole number from {{ first $bounds }} to {{ last $bounds | int64 }}
{{- else if or (lt (int64 $value) (first $bounds | int64)) (gt (int64 $value) (last $bounds | int64)) }}
config.operators has {{ $spec | quote }}, where {{ $parameter }} is {{ $value }}: set a whole number from {{ first $bounds }} to {{ last $bounds | int64 }}
{{- end }}
{{- $seen = append $seen $parameter }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
