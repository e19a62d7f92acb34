{{/* Taints that our own service accounts may take off and put back, as key=value:Effect; a CEL list. */}}
{{- define "gpu-rebalancer.ownerTaints" -}}
{{- $taints := .Values.admission.ownLimits.extraOwnerTaints -}}
{{- range .Values.policy.pools -}}
{{- with .owner_taint -}}
{{- $taints = append $taints (regexReplaceAll "^([^=:]+):" . "${1}=:") -}}
{{- end -}}
{{- end -}}
{{ $taints | uniq | sortAlpha | toJson }}
{{- end }}

{{/* The models that gpu-model may name. */}}
{{- define "gpu-rebalancer.models" -}}
{{- $dialect := .Files.Get "files/dialect.yaml" | fromYaml -}}
{{ concat (default $dialect.models .Values.policy.models) .Values.admission.nodeLabels.extraModels | uniq | toJson }}
{{- end }}

{{- define "gpu-rebalancer.maxGrace" -}}
{{- $dialect := .Files.Get "files/dialect.yaml" | fromYaml -}}
{{- $borrowing := default dict .Values.policy.borrowing -}}
{{- $said := default (default $dialect.maxGrace $borrowing.max_grace) .Values.admission.toleration.maxGrace -}}
{{- if contains "d" $said -}}
{{- fail (printf "admission.toleration.maxGrace: %s has days, which the API server does not read; write hours" $said) -}}
{{- end -}}
{{ $said }}
{{- end }}

{{/* A binding of a policy; (dict "root" . "name" suffix). */}}
{{- define "gpu-rebalancer.binding" -}}
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  name: {{ include "gpu-rebalancer.policyName" . }}
  labels: {{- include "gpu-rebalancer.labels" .root | nindent 4 }}
spec:
  policyName: {{ include "gpu-rebalancer.policyName" . }}
  validationActions: {{ .actions | toJson }}
{{- end }}

{{- define "gpu-rebalancer.policyName" -}}
{{ .root.Release.Namespace }}-{{ include "gpu-rebalancer.fullname" .root }}-{{ .name }}
{{- end }}
