{{/* The effects of gpu.mode on a pod. */}}

{{/* millrace.gpuResource returns the requested extended resource, or nothing if there is none. */}}
{{- define "millrace.gpuResource" -}}
{{- with .Values.gpu -}}
{{ get (dict "gpu" .resource "mig" .mig.resource "shared" .shared.resource) .mode }}
{{- end -}}
{{- end }}

{{- define "millrace.claimTemplateName" -}}
{{ .Values.gpu.dra.existingResourceClaimTemplate | default (printf "%s-gpu" (include "millrace.fullname" .)) }}
{{- end }}

{{/* millrace.resources returns the container's CPU, memory and GPUs. Extended resources are set as limits, which also sets the requests. */}}
{{- define "millrace.resources" -}}
{{- $resources := deepCopy .Values.resources -}}
{{- with include "millrace.gpuResource" . -}}
{{- $limits := merge (dict . (int64 $.Values.gpu.count)) ($resources.limits | default dict) -}}
{{- $resources = set $resources "limits" $limits -}}
{{- end -}}
{{- if eq .Values.gpu.mode "dra" -}}
{{- $resources = set $resources "claims" (list (dict "name" "gpu")) -}}
{{- end -}}
{{ toYaml $resources }}
{{- end }}

{{- define "millrace.resourceClaims" -}}
{{- if eq .Values.gpu.mode "dra" -}}
resourceClaims:
  - name: gpu
    resourceClaimTemplateName: {{ include "millrace.claimTemplateName" . }}
{{- end -}}
{{- end }}

{{- define "millrace.tolerations" -}}
{{- $tolerations := eq .Values.gpu.mode "none" | ternary list .Values.gpu.tolerations -}}
{{- with concat $tolerations .Values.tolerations -}}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end -}}
{{- end }}
