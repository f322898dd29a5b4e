{{/* The effects of gpu.mode on a pod. */}}

{{/* millrace.gpuResource returns the requested extended resource, or nothing if the pod requests none. */}}
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
{{- $resources := deepCopy (.Values.resources | default dict) -}}
{{- with include "millrace.gpuResource" . -}}
{{- $limits := merge (dict . (int64 $.Values.gpu.count)) (get $resources "limits" | default dict) -}}
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
{{- $tolerations := eq .Values.gpu.mode "none" | ternary list (.Values.gpu.tolerations | default list) -}}
{{- with concat $tolerations (.Values.tolerations | default list) -}}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end -}}
{{- end }}

{{- define "millrace.gpuProblems" -}}
{{- $gpu := .Values.gpu }}
{{- $resource := include "millrace.gpuResource" . }}
{{- if and (eq $gpu.mode "shared") (gt (int64 $gpu.count) 1) }}
gpu.count is {{ $gpu.count }} with gpu.mode=shared, but a second share may be on the same GPU and adds nothing: set 1
{{- end }}
{{- if and (eq $gpu.mode "mig") (gt (int64 $gpu.count) 1) }}
gpu.count is {{ $gpu.count }} with gpu.mode=mig, but CUDA gives a process only one instance, so the others would stay idle: set 1, and replicaCount={{ $gpu.count }}
{{- end }}
{{- if and (eq $gpu.mode "none") (eq .Values.config.device "cuda") }}
config.device is cuda with gpu.mode=none, so no pod could start: set gpu.mode to what a pod gets, or leave config.device empty
{{- end }}
{{- range $part, $asked := .Values.resources }}
{{- range $name, $count := $asked | default dict }}
{{- if or (eq $name $resource) (hasPrefix "nvidia.com/" $name) }}
resources.{{ $part }} has {{ $name }}, which comes from gpu: set gpu.mode and gpu.count instead
{{- end }}
{{- end }}
{{- end }}
{{- if and (eq $gpu.mode "dra") (semverCompare "<1.34.0-0" .Capabilities.KubeVersion.Version) }}
gpu.mode is dra, which needs resource.k8s.io/v1 of Kubernetes 1.34, and this is {{ .Capabilities.KubeVersion.Version }}: set gpu.mode to gpu, mig or shared, with NVIDIA's device plugin, or upgrade the cluster
{{- end }}
{{- end }}
