{{- /* Names of components that have a certificate, with the host names and addresses in it, as YAML. */ -}}
{{- define "tidemark.certificates" -}}
{{- $root := . -}}
{{- $name := include "tidemark.name" . -}}
{{- $domain := include "tidemark.domain" . -}}
{{- $all := dict "operator" (list) -}}
{{- range $role, $_ := include "tidemark.roles" . | fromYaml -}}
{{- $hosts := list (printf "*.%s-%s.%s" $name $role $domain) "localhost" "127.0.0.1" -}}
{{- range $service := dict "broker" (list "bootstrap" "broker") "controller" (list "rest") | dig $role (list) -}}
{{- $short := printf "%s-%s" $name $service -}}
{{- $inside := printf "%s.%s" $short $root.Release.Namespace -}}
{{- $hosts = concat $hosts (list $short $inside (printf "%s.svc" $inside) (printf "%s.%s" $short $domain)) -}}
{{- end -}}
{{- if eq $role "broker" -}}
{{- range $root.Values.external.addresses -}}
{{- $hosts = append $hosts (regexReplaceAll ":[0-9]+$" . "") -}}
{{- end -}}
{{- $hosts = concat $hosts $root.Values.tls.hosts -}}
{{- end -}}
{{- $_ := set $all $role ($hosts | uniq) -}}
{{- end -}}
{{- if not .Values.zookeeper.external -}}
{{- $_ := set $all "zookeeper" (list (printf "*.%s-zookeeper.%s" $name $domain)) -}}
{{- end -}}
{{ toYaml $all }}
{{- end -}}

{{- /* Secret with the certificate of a component. Arguments: root, role. */ -}}
{{- define "tidemark.certificateSecret" -}}
{{- if and .root.Values.tls.existingSecret (ne .role "operator") -}}
{{ .root.Values.tls.existingSecret }}
{{- else -}}
{{ include "tidemark.name" .root }}-{{ .role }}-tls
{{- end -}}
{{- end -}}

{{- define "tidemark.passwordSecret" -}}
{{ default (printf "%s-admin" (include "tidemark.name" .)) .Values.auth.existingSecret }}
{{- end -}}

{{- /* Principals of the processes, as a list. */ -}}
{{- define "tidemark.principals" -}}
{{- $names := list -}}
{{- if .Values.tls.existingSecret -}}
{{- $names = list .Values.tls.principal -}}
{{- else -}}
{{- range $role, $_ := include "tidemark.roles" . | fromYaml -}}
{{- $names = append $names (printf "User:CN=%s-%s" (include "tidemark.name" $) $role) -}}
{{- end -}}
{{- end -}}
{{ toYaml $names }}
{{- end -}}

{{- /* Options that make a service secure. Arguments: root, role. */ -}}
{{- define "tidemark.security" -}}
{{- $v := .root.Values -}}
{{- $config := dict -}}
{{- $broker := eq .role "broker" -}}
{{- $principals := include "tidemark.principals" .root | fromYamlArray -}}
{{- $files := dict "certificate" "/etc/tidemark-certificate/tls.crt" "key" "/etc/tidemark-certificate/tls.key" "ca" "/etc/tidemark-certificate/ca.crt" -}}
{{- $prefixes := list -}}
{{- if $v.tls.enabled -}}
{{- $prefixes = list "grpc.ssl" -}}
{{- $_ := set $config "grpc.ssl.client.auth" "required" -}}
{{- $_ := set $config "cluster.principals" (join ";" $principals) -}}
{{- if not $v.zookeeper.external -}}
{{- $prefixes = append $prefixes "zookeeper.ssl" -}}
{{- $_ := set $config "zookeeper.ssl.client.enable" true -}}
{{- $_ := set $config "zookeeper.digest.file" "/etc/tidemark-zookeeper/digest" -}}
{{- $_ := set $config "zookeeper.set.acl" true -}}
{{- end -}}
{{- if $broker -}}
{{- $prefixes = concat $prefixes (list "ssl" "listener.name.internal.ssl") -}}
{{- $_ := set $config "listener.name.internal.ssl.client.auth" "required" -}}
{{- end -}}
{{- if eq .role "controller" -}}
{{- $prefixes = append $prefixes "rest.ssl" -}}
{{- end -}}
{{- end -}}
{{- range $prefix := $prefixes -}}
{{- range $kind, $path := $files -}}
{{- $_ := set $config (printf "%s.%s.location" $prefix $kind) $path -}}
{{- end -}}
{{- end -}}
{{- if and $broker $v.external.tlsSecretName -}}
{{- $_ := set $config "listener.name.external.ssl.certificate.location" "/etc/tidemark-tls/tls.crt" -}}
{{- $_ := set $config "listener.name.external.ssl.key.location" "/etc/tidemark-tls/tls.key" -}}
{{- end -}}
{{- if $broker -}}
{{- $protocol := ternary "SASL_SSL" (ternary "SSL" "PLAINTEXT" $v.tls.enabled) $v.auth.enabled -}}
{{- $map := list -}}
{{- if $v.tls.enabled -}}
{{- $map = list (printf "CLIENT:%s" $protocol) "INTERNAL:SSL" -}}
{{- if $v.grpc.enabled -}}
{{- $map = append $map (printf "GRPC:%s" $protocol) -}}
{{- end -}}
{{- end -}}
{{- if and (ne $v.external.type "none") (or $v.tls.enabled $v.external.tlsSecretName) -}}
{{- $map = append $map (printf "EXTERNAL:%s" (ternary $protocol "SSL" $v.tls.enabled)) -}}
{{- end -}}
{{- if $map -}}
{{- $_ := set $config "listener.security.protocol.map" (join "," $map) -}}
{{- end -}}
{{- end -}}
{{- if and $v.auth.enabled (has .role (list "broker" "controller")) -}}
{{- $_ := set $config "authorizer.class.name" "org.apache.kafka.metadata.authorizer.StandardAuthorizer" -}}
{{- $_ := set $config "super.users" (join ";" (prepend $v.auth.superUsers (printf "User:%s" $v.auth.superUser))) -}}
{{- if $broker -}}
{{- $_ := set $config "sasl.enabled.mechanisms" (join "," $v.auth.mechanisms) -}}
{{- else -}}
{{- $_ := set $config "initial.users.file" "/tmp/users" -}}
{{- $_ := set $config "rest.authentication.mechanisms" "basic,mtls" -}}
{{- $_ := set $config "rest.ssl.client.auth" "requested" -}}
{{- /* What is asked before a broker is stopped: by itself, and by tidemark k8s. */ -}}
{{- $viewers := list -}}
{{- range $principal := ternary $principals (append $principals (printf "User:CN=%s-operator" (include "tidemark.name" .root))) (ne $v.tls.existingSecret "") -}}
{{- $viewers = append $viewers (printf "%s=viewer" $principal) -}}
{{- end -}}
{{- $_ := set $config "rest.roles" (join ";" $viewers) -}}
{{- end -}}
{{- end -}}
{{ toYaml $config }}
{{- end -}}

{{- /* Settings of the command line in a pod of a broker or a controller: it shows the pod's certificate. */ -}}
{{- define "tidemark.commandLine" -}}
- {name: TIDEMARK_BOOTSTRAP, value: "{{ include "tidemark.name" . }}-bootstrap.{{ include "tidemark.domain" . }}:{{ ternary "9192" "9092" .Values.tls.enabled }}"}
- {name: TIDEMARK_GRPC_BOOTSTRAP, value: "{{ include "tidemark.name" . }}-bootstrap.{{ include "tidemark.domain" . }}:9292"}
- {name: TIDEMARK_REST, value: "{{ include "tidemark.rest" . }}"}
{{- if .Values.tls.enabled }}
- {name: TIDEMARK_SECURITY_PROTOCOL, value: SSL}
{{ include "tidemark.ownCertificate" . }}
{{- end }}
{{- end -}}

{{- define "tidemark.ownCertificate" -}}
- {name: TIDEMARK_SSL_CA_LOCATION, value: /etc/tidemark-certificate/ca.crt}
- {name: TIDEMARK_SSL_CERTIFICATE_LOCATION, value: /etc/tidemark-certificate/tls.crt}
- {name: TIDEMARK_SSL_KEY_LOCATION, value: /etc/tidemark-certificate/tls.key}
{{- end -}}

{{- /* Mounts and volumes of the Secrets of a service. Arguments: root, role. */ -}}
{{- define "tidemark.secretMounts" -}}
{{- $v := .root.Values -}}
{{- if $v.tls.enabled -}}
- {name: certificate, mountPath: /etc/tidemark-certificate, readOnly: true}
{{- if not $v.zookeeper.external }}
- {name: zookeeper-user, mountPath: /etc/tidemark-zookeeper, readOnly: true}
{{- end }}
{{- end }}
{{- if and $v.auth.enabled (eq .role "controller") }}
- {name: super-user, mountPath: /etc/tidemark-super-user, readOnly: true}
{{- end }}
{{- end -}}

{{- define "tidemark.secretVolumes" -}}
{{- $v := .root.Values -}}
{{- if $v.tls.enabled -}}
- name: certificate
  secret: {secretName: {{ include "tidemark.certificateSecret" . }}, defaultMode: 0440}
{{- if not $v.zookeeper.external }}
- name: zookeeper-user
  secret: {secretName: {{ include "tidemark.name" .root }}-zookeeper-user, defaultMode: 0440}
{{- end }}
{{- end }}
{{- if and $v.auth.enabled (eq .role "controller") }}
- name: super-user
  secret: {secretName: {{ include "tidemark.passwordSecret" .root }}, defaultMode: 0440, items: [{key: password, path: password}]}
{{- end }}
{{- end -}}

{{- /* Settings, mounts and volumes of a pod whose command line is a client with the login of the super user. */ -}}
{{- define "tidemark.superUser" -}}
{{- if .Values.tls.enabled -}}
- {name: TIDEMARK_SECURITY_PROTOCOL, value: {{ ternary "SASL_SSL" "SSL" .Values.auth.enabled }}}
- {name: TIDEMARK_SSL_CA_LOCATION, value: /etc/tidemark-certificate/ca.crt}
{{- end }}
{{- if .Values.auth.enabled }}
- {name: TIDEMARK_SASL_MECHANISM, value: SCRAM-SHA-512}
- {name: TIDEMARK_SASL_USERNAME, value: "{{ .Values.auth.superUser }}"}
- {name: TIDEMARK_SASL_PASSWORD_FILE, value: /etc/tidemark-super-user/password}
{{- end }}
{{- end -}}

{{- define "tidemark.superUserMounts" -}}
{{- if .Values.tls.enabled -}}
- {name: certificate, mountPath: /etc/tidemark-certificate, readOnly: true}
{{- end }}
{{- if .Values.auth.enabled }}
- {name: super-user, mountPath: /etc/tidemark-super-user, readOnly: true}
{{- end }}
{{- end -}}

{{- define "tidemark.superUserVolumes" -}}
{{- if .Values.tls.enabled -}}
# The authority alone: this is a client.
- name: certificate
  secret: {secretName: {{ include "tidemark.certificateSecret" (dict "root" . "role" "operator") }}, defaultMode: 0440, items: [{key: ca.crt, path: ca.crt}]}
{{- end }}
{{- if .Values.auth.enabled }}
- name: super-user
  secret: {secretName: {{ include "tidemark.passwordSecret" . }}, defaultMode: 0440, items: [{key: password, path: password}]}
{{- end }}
{{- end -}}

{{- /* Provisioned users whose Secrets the Job makes, as a list. */ -}}
{{- define "tidemark.madeUsers" -}}
{{- $names := list -}}
{{- if .Values.provisioning.enabled -}}
{{- range .Values.provisioning.users -}}
{{- if not .existingSecret -}}
{{- $names = append $names .name -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{ toYaml $names }}
{{- end -}}
