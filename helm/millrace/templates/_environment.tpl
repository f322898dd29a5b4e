{{/*
millrace.environment returns the container's variables. Each key of config is a variable in camel case. The argument is a dict with the root
context ("root") and with replacements for keys of config ("instead").
*/}}
{{- define "millrace.environment" -}}
{{- $root := .root -}}
{{- $values := $root.Values -}}
{{- $config := merge (deepCopy .instead) (include "millrace.computed" $root | fromYaml) $values.config -}}
{{- range include "millrace.omitted" $values.config | fromJsonArray -}}
{{- $config = omit $config . -}}
{{- end -}}
{{ include "millrace.natsEnvironment" $root }}
- name: MILLRACE_HTTP_ADDR
  value: {{ printf ":%d" (int64 $values.http.port) | quote }}
{{- range $key, $value := $config }}
{{- with include "millrace.text" $value }}
- name: MILLRACE_{{ $key | snakecase | upper }}
  value: {{ . | quote }}
{{- end }}
{{- end }}
{{- with include "millrace.gpuEnvironment" $root }}
{{ . }}
{{- end }}
{{- with $values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* millrace.computed returns the variables that the chart computes if the values don't set them. */}}
{{- define "millrace.computed" -}}
device: {{ .Values.config.device | default (eq .Values.gpu.mode "none" | ternary "host" "cuda") }}
maxAckPending: {{ include "millrace.maxAckPending" . }}
{{- with include "millrace.operatorPath" . }}
operatorPath: {{ . | quote }}
{{- end }}
{{- with include "millrace.cacheDir" . }}
cacheDir: {{ . | quote }}
{{- end }}
{{- if .Values.nats.embedded.enabled }}
provision: true
dataDir: {{ .Values.nats.embedded.dataDir | quote }}
{{- end }}
{{- end }}

{{/* millrace.text converts a value to the text of a variable: lists are joined with commas, and numbers have no exponent. */}}
{{- define "millrace.text" -}}
{{- if kindIs "slice" . -}}
{{ join "," . }}
{{- else if kindIs "float64" . -}}
{{ int64 . }}
{{- else -}}
{{ . }}
{{- end -}}
{{- end }}

{{/* millrace.natsEnvironment returns the variables for NATS. They contain only the paths of files. The contents stay in the Secrets. */}}
{{- define "millrace.natsEnvironment" -}}
{{- with .Values.nats -}}
- name: MILLRACE_NATS_CONNECTIONS
  value: {{ int64 .connections | quote }}
{{- with .jsDomain }}
- name: MILLRACE_NATS_JS_DOMAIN
  value: {{ . | quote }}
{{- end }}
{{- with .jsPrefix }}
- name: MILLRACE_NATS_JS_PREFIX
  value: {{ . | quote }}
{{- end }}
- name: MILLRACE_NATS_TLS_FIRST
  value: {{ .tls.first | default false | quote }}
{{- if .urlKey }}
- name: MILLRACE_NATS_URL
  valueFrom:
    secretKeyRef:
      name: {{ .existingSecret }}
      key: {{ .urlKey }}
{{- else if .url }}
- name: MILLRACE_NATS_URL
  value: {{ .url | quote }}
{{- end }}
{{- if .credsKey }}
- name: MILLRACE_NATS_CREDS
  value: {{ printf "/etc/millrace/nats/%s" .credsKey | quote }}
{{- end }}
{{- if .nkeyKey }}
- name: MILLRACE_NATS_NKEY
  value: {{ printf "/etc/millrace/nats/%s" .nkeyKey | quote }}
{{- end }}
{{- range $file := list "ca" "cert" "key" }}
{{- with get $.Values.nats.tls (printf "%sKey" $file) }}
- name: MILLRACE_NATS_TLS_{{ upper $file }}
  value: {{ printf "/etc/millrace/tls/%s" . | quote }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/*
millrace.gpuEnvironment returns the variables for the NVIDIA container runtime and the driver. If that runtime is the node's default, an image
that requests all GPUs gets them without the scheduler's knowledge, unless a device plugin overrides it. "void" makes the runtime ignore the
container. The root file system is read-only, so the driver caches compiled code in /tmp.
*/}}
{{- define "millrace.gpuEnvironment" -}}
{{- if has .Values.gpu.mode (list "none" "dra") -}}
- name: NVIDIA_VISIBLE_DEVICES
  value: void
{{ end -}}
{{- if ne .Values.gpu.mode "none" -}}
- name: CUDA_CACHE_PATH
  value: /tmp/cuda
{{- end -}}
{{- end }}
