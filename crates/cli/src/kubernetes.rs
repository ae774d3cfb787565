//! The variables in which Kubernetes tells each container of the services beside it.
//!
//! They begin with the service's name, so that those of a service `tallybook`, or `tallybook-s3`, begin as
//! settings do. No setting has a name of theirs.

/// Whether Kubernetes makes a variable of this value and, without the service's `TALLYBOOK_`, this name.
pub(crate) fn tells_of_a_service(name: &str, value: &str) -> bool {
    let is_address = || {
        let scheme = value.split_once("://").map(|(scheme, _)| scheme);
        scheme.is_some_and(|scheme| ["tcp", "udp", "sctp"].contains(&scheme))
    };
    let is_port = |number: &str, protocol: &str| {
        number.parse::<u16>().is_ok() && ["TCP", "UDP", "SCTP"].contains(&protocol)
    };
    let words: Vec<&str> = name.split('_').collect();
    let is_of_a_shape = match words[..] {
        [.., "SERVICE", "HOST"] => true,
        [.., "PORT", number, protocol] if is_port(number, protocol) => true,
        [.., "PORT", number, protocol, "PROTO" | "PORT" | "ADDR"] if is_port(number, protocol) => {
            true
        }
        [.., "PORT"] => is_address(),
        _ => false,
    };
    // The port, and each that has a name, which stands behind.
    is_of_a_shape || words.windows(2).any(|pair| pair == ["SERVICE", "PORT"])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_of_services_are_told_from_settings() {
        for (name, value) in [
            ("SERVICE_HOST", "10.0.0.1"),
            ("SERVICE_PORT", "8080"),
            ("SERVICE_PORT_HTTP", "8080"),
            ("SERVICE_PORT_ADMIN_PORT", "9080"),
            ("PORT", "tcp://10.0.0.1:8080"),
            ("PORT_8080_TCP", "tcp://10.0.0.1:8080"),
            ("PORT_8080_TCP_PROTO", "tcp"),
            ("PORT_8080_TCP_PORT", "8080"),
            ("PORT_8080_TCP_ADDR", "10.0.0.1"),
            ("PORT_53_UDP_ADDR", "10.0.0.1"),
            ("S3_SERVICE_HOST", "10.0.0.1"),
            ("S3_SERVICE_PORT_HTTP", "9000"),
            ("S3_PORT", "sctp://[fd00::1]:9000"),
            ("S3_PORT_9000_SCTP", "sctp://[fd00::1]:9000"),
        ] {
            assert!(tells_of_a_service(name, value), "{name}={value}");
        }
        for (name, value) in [
            ("PORT", "8080"),
            ("S3", "tcp://10.0.0.1:8080"),
            ("PORT_HTTP_TCP", "8080"),
            ("PORT_8080", "8080"),
            ("PORT_8080_TCP_HOST", "10.0.0.1"),
            ("SERVICE", "10.0.0.1"),
            ("HOST", "10.0.0.1"),
            ("ALLOWED_HOST", "tcp://a"),
            ("service_host", "10.0.0.1"),
        ] {
            assert!(!tells_of_a_service(name, value), "{name}={value}");
        }
    }
}
