"""What is served at a moment is said once, here: an approved step counts from its time on, whatever runs or does not."""

from django.db import migrations

FORWARD = """
UPDATE inference_modelversion SET quantization = lower(quantization) WHERE lower(quantization) IN ('fp8', 'int4-awq', 'nvfp4');
UPDATE inference_modelversion SET quantization = 'none' WHERE quantization = '';
UPDATE inference_modelversion SET source_kind = CASE WHEN source LIKE '/%' THEN 'path' ELSE 'hub' END WHERE source <> '';

CREATE TRIGGER inference_lifecyclestep_moves_configuration AFTER INSERT OR UPDATE OR DELETE ON inference_lifecyclestep
    FOR EACH STATEMENT EXECUTE FUNCTION inference_configuration_moved();

CREATE FUNCTION inference_served(moment timestamptz)
    RETURNS TABLE (deployment_id uuid, model_version_id uuid) LANGUAGE sql STABLE AS $$
    SELECT d.id, m.id
    FROM inference_deployment d
    JOIN inference_modelversion m ON m.id = d.model_version_id
    LEFT JOIN inference_lifecyclestep s
        ON s.model_version_id = m.id AND s.state = 'approved' AND s.effective_from <= moment
    WHERE d.is_enabled AND NOT d.is_draining
        AND coalesce(s.to_state, m.lifecycle) IN ('live', 'canary')
        AND (m.embargo_until IS NULL OR m.embargo_until <= moment)
        AND (m.retires_at IS NULL OR m.retires_at > moment)
$$;

-- Moves when time alone changes what is served, as the configuration's version does when somebody changes it.
CREATE FUNCTION inference_moments_passed(moment timestamptz) RETURNS bigint LANGUAGE sql STABLE AS $$
    SELECT (SELECT count(*) FROM inference_lifecyclestep WHERE state = 'approved' AND effective_from <= moment)
        + (SELECT count(*) FILTER (WHERE embargo_until <= moment) + count(*) FILTER (WHERE retires_at <= moment)
           FROM inference_modelversion)
$$;
"""
REVERSE = """
DROP FUNCTION inference_moments_passed(timestamptz);
DROP FUNCTION inference_served(timestamptz);
DROP TRIGGER inference_lifecyclestep_moves_configuration ON inference_lifecyclestep;
"""


class Migration(migrations.Migration):
    dependencies = [("inference", "0007_catalog"), ("inference", "0002_configuration_version")]
    operations = [migrations.RunSQL(FORWARD, REVERSE)]
