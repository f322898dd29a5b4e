{{/*
millrace.environment is the container's variables. Each key of config is one, in camel case. It takes a dict of the root
context ("root") and of what stands in place of keys of config ("instead").
*/}}
{{- define "millrace.environment" -}}
{{- $root := .root -}}
{{- $values := $root.Values -}}
{{- $config := merge (deepCopy .instead) (include "millrace.computed" $root | fromYaml) $values.config -}}
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

{{/* The variables that the chart decides on where values leave them open. */}}
{{- define "millrace.computed" -}}
device: {{ .Values.config.device | default (eq .Values.gpu.mode "none" | ternary "host" "cuda") }}
maxAckPending: {{ include "millrace.maxAckPending" . }}
{{- if .Values.nats.embedded.enabled }}
provision: true
dataDir: {{ .Values.nats.embedded.dataDir | quote }}
{{- end }}
{{- end }}

{{/* A value as a variable takes it: lists with commas, and numbers without an exponent. */}}
{{- define "millrace.text" -}}
{{- if kindIs "slice" . -}}
{{ join "," . }}
{{- else if kindIs "float64" . -}}
{{ int64 . }}
{{- else -}}
{{ . }}
{{- end -}}
{{- end }}

{{/* How NATS is reached. Files are named; what is in them stays in the Secrets. */}}
{{- define "millrace.natsEnvironment" -}}
{{- with .Values.nats -}}
- name: MILLRACE_NATS_CONNECTIONS
  value: {{ int64 .connections | quote }}
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
What the NVIDIA container runtime and the driver read. An image that asks for all GPUs would get them past the scheduler wherever
that runtime is the node's default, unless a device plugin says otherwise: "void" makes it leave the container alone. The root is
read-only, so code that the driver compiles is cached in /tmp.
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
