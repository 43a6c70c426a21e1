select coalesce(max(version_id), 0) as version from paidonce.schema_version where is_applied
