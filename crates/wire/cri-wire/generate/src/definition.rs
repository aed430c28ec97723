//! Prints a file descriptor as a plain `.proto`.
//!
//! Rule: what is printed is only what the wire needs: names, numbers, types, labels and the one
//! field option that matters to a reader of the generated code. Comments and file options are
//! dropped. What the format does not use (oneofs, extensions, nested messages) is an error, so that
//! an addition cannot be lost silently.

use std::fmt::Write;

use anyhow::{Context, Result, ensure};
use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{
    DescriptorProto, EnumDescriptorProto, FieldDescriptorProto, FileDescriptorProto,
    ServiceDescriptorProto,
};

const HEADER: &str = "\
// The CRI v1 wire format as this project reads and writes it: names, numbers and types of
// release 0.36 of the standard, nothing else. Made by ../generate (verb `define`); not edited by
// hand. ../src/generated is made from this file (verb `write`).
";

/// The whole file as text: services first, then enums, then messages, in the order given.
pub fn print(file: &FileDescriptorProto) -> Result<String> {
    ensure!(file.syntax() == "proto3", "expected proto3, found {:?}", file.syntax());
    ensure!(file.extension.is_empty(), "extensions are not printed");
    let package = file.package();
    let mut text = format!("{HEADER}\nsyntax = \"proto3\";\n\npackage {package};\n");
    for service in &file.service {
        print_service(&mut text, service, package)?;
    }
    for enumeration in &file.enum_type {
        text.push('\n');
        print_enum(&mut text, enumeration, "")?;
    }
    for message in &file.message_type {
        print_message(&mut text, message, package)
            .with_context(|| format!("message {}", message.name()))?;
    }
    Ok(text)
}

fn print_service(text: &mut String, service: &ServiceDescriptorProto, package: &str) -> Result<()> {
    writeln!(text, "\nservice {} {{", service.name())?;
    for method in &service.method {
        let stream = |streams: bool| if streams { "stream " } else { "" };
        writeln!(
            text,
            "    rpc {}({}{}) returns ({}{});",
            method.name(),
            stream(method.client_streaming()),
            local_name(method.input_type(), package)?,
            stream(method.server_streaming()),
            local_name(method.output_type(), package)?,
        )?;
    }
    writeln!(text, "}}")?;
    Ok(())
}

fn print_enum(text: &mut String, enumeration: &EnumDescriptorProto, indent: &str) -> Result<()> {
    writeln!(text, "{indent}enum {} {{", enumeration.name())?;
    for value in &enumeration.value {
        writeln!(text, "{indent}    {} = {};", value.name(), value.number())?;
    }
    writeln!(text, "{indent}}}")?;
    Ok(())
}

fn print_message(text: &mut String, message: &DescriptorProto, package: &str) -> Result<()> {
    ensure!(message.oneof_decl.is_empty(), "oneofs and optional fields are not printed");
    let is_map = |nested: &DescriptorProto| nested.options.as_ref().is_some_and(|o| o.map_entry());
    ensure!(message.nested_type.iter().all(is_map), "nested messages are not printed");
    if message.field.is_empty() && message.reserved_range.is_empty() {
        writeln!(text, "\nmessage {} {{}}", message.name())?;
        return Ok(());
    }
    writeln!(text, "\nmessage {} {{", message.name())?;
    for enumeration in &message.enum_type {
        print_enum(text, enumeration, "    ")?;
    }
    for range in &message.reserved_range {
        // The end of a reserved range is exclusive in a descriptor and inclusive in the text.
        writeln!(text, "    reserved {} to {};", range.start(), range.end() - 1)?;
    }
    for field in &message.field {
        let map_entry = message.nested_type.iter().find(|nested| {
            field.type_name() == format!(".{package}.{}.{}", message.name(), nested.name())
        });
        let field_type = match map_entry {
            Some(entry) => map_type(entry, package)?,
            None if field.label() == Label::Repeated => {
                format!("repeated {}", type_name(field, package)?)
            }
            None => type_name(field, package)?,
        };
        let number = field.number();
        writeln!(text, "    {field_type} {} = {number}{};", field.name(), options(field))?;
    }
    writeln!(text, "}}")?;
    Ok(())
}

fn map_type(entry: &DescriptorProto, package: &str) -> Result<String> {
    let part = |name: &str| {
        let field = entry.field.iter().find(|field| field.name() == name);
        type_name(field.with_context(|| format!("map entry without {name}"))?, package)
    };
    Ok(format!("map<{}, {}>", part("key")?, part("value")?))
}

fn options(field: &FieldDescriptorProto) -> String {
    let deprecated = field.options.as_ref().is_some_and(|options| options.deprecated());
    if deprecated { " [deprecated = true]".to_owned() } else { String::new() }
}

fn type_name(field: &FieldDescriptorProto, package: &str) -> Result<String> {
    let scalar = match field.r#type() {
        Type::Message | Type::Enum => return local_name(field.type_name(), package),
        Type::Double => "double",
        Type::Float => "float",
        Type::Int64 => "int64",
        Type::Uint64 => "uint64",
        Type::Int32 => "int32",
        Type::Uint32 => "uint32",
        Type::Bool => "bool",
        Type::String => "string",
        Type::Bytes => "bytes",
        other => anyhow::bail!("field {}: type {other:?} is not printed", field.name()),
    };
    Ok(scalar.to_owned())
}

fn local_name(full_name: &str, package: &str) -> Result<String> {
    let prefix = format!(".{package}.");
    let local = full_name.strip_prefix(&prefix);
    Ok(local.with_context(|| format!("{full_name} is not of package {package}"))?.to_owned())
}
